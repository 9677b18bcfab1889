"""`pw.save` and `pw.restore`: trees of arrays in one file, by key path and global shape, on whatever devices.

The file is a .npz of numpy's, without pickles: a member an array, named by its key path, and one that says how each is
to be read. Element types that numpy does not know are stored as integers of their size.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from pathways.api import npz
from pathways.api.array import Array
from pathways.api.errors import WrongSnapshot
from pathways.api.fetched import typed_keys
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import is_of_numpy, numpy_dtype
from pathways.dialect.files import whole_file
from pathways.dialect.jax_api import dtypes, key_data, tree_util
from pathways.dialect.user_line import caller

_INDEX = npz.INDEX
_VERSION = 1


def save(tree: Any, path: str | Path) -> int:
    """Writes a pytree of arrays (`pw.Array`, `jax.Array`, numpy, Python numbers); returns the bytes written.

    Waits for the arrays. The file is complete, or what was there stays: it is written beside and renamed. Raises what
    reading the arrays raises, PWC0606 where the file cannot be written, PWC0514 for leaves that are no arrays.
    """
    leaves, _ = tree_util.tree_flatten_with_path(tree)
    members: dict[str, np.ndarray[Any, Any]] = {}
    index: dict[str, str] = {}
    for keys, leaf in leaves:
        name = tree_util.keystr(keys) or "."
        stored, dtype = _stored(leaf)
        if stored.dtype.kind in "USOMm":
            have = f"{type(leaf).__name__}, which is stored as {stored.dtype}"
            rule = "arrays, numbers and typed keys"
            raise PathwaysError(WrongSnapshot(path=str(path), name=name, have_=have, rule=rule, where=caller()))
        index[name] = dtype
        raw = stored if is_of_numpy(stored.dtype) else stored.view(f"u{stored.dtype.itemsize}")
        members[f"a{len(members)}"] = raw
    head = {"version": _VERSION, "arrays": [{"name": n, "dtype": d} for n, d in index.items()]}
    with whole_file(path) as file:
        np.savez(file, **{_INDEX: np.frombuffer(json.dumps(head).encode(), np.uint8)}, **cast("Any", members))
    return Path(path).stat().st_size


def restore(tree: Any, path: str | Path) -> Any:
    """Reads what `save` or `pwc run --outputs` wrote into the structure of `tree`.

    Its leaves, arrays or `jax.ShapeDtypeStruct`s, say shape and element type. Gives arrays on the host, which programs
    put where they want them, whatever topology they were saved on; typed keys are typed keys. Raises PWC0514 with all
    that does not fit.
    """
    leaves, structure = tree_util.tree_flatten_with_path(tree)
    found = _read(path)
    wrong: list[WrongSnapshot] = []
    out: list[Any] = []
    for keys, leaf in leaves:
        name = tree_util.keystr(keys) or "."
        shape, dtype = _type_of(leaf)
        have = found.get(name)
        array, got = (None, "nothing") if have is None else _loaded(*have)
        if array is None or tuple(array.shape) != shape or _name(array.dtype) != dtype:
            need = f"{dtype} {list(shape)}"
            wrong.append(WrongSnapshot(path=str(path), name=name, have_=got, rule=need, where=caller()))
        out.append(array)
    if wrong:
        raise PathwaysError(*wrong)
    return tree_util.tree_unflatten(structure, out)


def _stored(leaf: Any) -> tuple["np.ndarray[Any, Any]", str]:
    """Copies a leaf to the host; returns its bytes and its type."""
    if isinstance(leaf, Array):
        return leaf.stored(), _name(leaf.dtype)
    if isinstance(leaf, jax.Array) and dtypes.issubdtype(leaf.dtype, dtypes.prng_key):
        return np.asarray(key_data(leaf)), str(leaf.dtype)
    array = np.asarray(leaf)
    return array, _name(array.dtype)


def _type_of(leaf: Any) -> tuple[tuple[int, ...], str]:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), _name(leaf.dtype)
    array = np.asarray(leaf)
    return tuple(array.shape), _name(array.dtype)


def _name(dtype: Any) -> str:
    return "float0" if dtype == dtypes.float0 else str(dtype)


def _loaded(raw: "np.ndarray[Any, Any]", dtype: str) -> tuple[Any, str]:
    """Makes an array of its bytes and its type; None where the two do not fit."""
    try:
        array = _as_stated(raw, dtype)
    except (TypeError, ValueError):
        return None, f"{raw.dtype} {list(raw.shape)}, which is stated to be {dtype}"
    return array, f"{_name(array.dtype)} {list(array.shape)}"


def _as_stated(raw: "np.ndarray[Any, Any]", dtype: str) -> Any:
    if dtype == "float0":
        return np.zeros(raw.shape, dtypes.float0)
    if dtype.startswith("key<"):
        return typed_keys(raw, dtype)
    wanted = numpy_dtype(dtype)
    return raw if raw.dtype == wanted else raw.view(wanted)


def _read(path: str | Path) -> Mapping[str, tuple["np.ndarray[Any, Any]", str]]:
    """Reads raw arrays and element types by name."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if _INDEX not in file.files:  # results whose types numpy knows
                return {npz.key_path(n): (file[n], str(file[n].dtype)) for n in file.files}
            head = json.loads(bytes(file[_INDEX]))
            if head["version"] != _VERSION:
                raise ValueError(f"version {head['version']}")
            rows = enumerate(head["arrays"])
            return {a["name"]: (file[a.get("member", f"a{i}")], str(a["dtype"])) for i, a in rows}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        said = "no .npz archive" if "pickle" in str(error) else str(error) or type(error).__name__
        problem = getattr(error, "strerror", None) or said
        wrong = WrongSnapshot(path=str(path), name="the file", have_=problem, rule="a file of pw.save", where=caller())
        raise PathwaysError(wrong) from None
