"""`pw.save` and `pw.restore`: trees of arrays in one file, by key path and global shape, on whatever devices.

The file is a .npz of numpy's, without pickles: a member an array, named by its key path, and one that says how each is
to be read. Element types that numpy does not know are stored as integers of their size.
"""

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from pathways.api.array import Array
from pathways.api.errors import WrongSnapshot
from pathways.api.fetched import typed_keys
from pathways.compiler.frontend.caller import caller
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.jax_api import dtypes, key_data, tree_util
from pathways.dialect.planfile import writing

_INDEX = "pathways.json"
_VERSION = 1


def save(tree: Any, path: str | Path) -> int:
    """Writes a pytree of arrays (`pw.Array`, `jax.Array`, numpy, Python numbers); gives the bytes written.

    Waits for the arrays. The file is complete or not there: it is written beside `path` and renamed. Raises what
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
        raw = stored if stored.dtype.kind in "biufc" else stored.view(f"u{stored.dtype.itemsize}")
        members[f"a{len(members)}"] = raw
    head = {"version": _VERSION, "arrays": [{"name": n, "dtype": d} for n, d in index.items()]}
    target = Path(path)
    with writing(path):
        descriptor, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.savez(file, **{_INDEX: np.frombuffer(json.dumps(head).encode(), np.uint8)}, **cast("Any", members))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    return target.stat().st_size


def restore(tree: Any, path: str | Path) -> Any:
    """Reads what `save` wrote into the structure of `tree`, whose leaves say shape and element type.

    Leaves may be arrays or `jax.ShapeDtypeStruct`s. Gives arrays on the host, which programs put where they want them,
    whatever topology they were saved on; typed keys are typed keys. Raises PWC0514 with all that does not fit.
    """
    leaves, structure = tree_util.tree_flatten_with_path(tree)
    found = _read(path)
    wrong: list[WrongSnapshot] = []
    out: list[Any] = []
    for keys, leaf in leaves:
        name = tree_util.keystr(keys) or "."
        shape, dtype = _type_of(leaf)
        have = found.get(name)
        array = None if have is None else _loaded(*have)
        if array is None or tuple(array.shape) != shape or str(array.dtype) != dtype:
            got = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
            need = f"{dtype} {list(shape)}"
            wrong.append(WrongSnapshot(path=str(path), name=name, have_=got, rule=need, where=caller()))
        out.append(array)
    if wrong:
        raise PathwaysError(*wrong)
    return tree_util.tree_unflatten(structure, out)


def _stored(leaf: Any) -> tuple["np.ndarray[Any, Any]", str]:
    """The bytes of a leaf on the host, and what it is."""
    if isinstance(leaf, Array):
        return leaf.stored(), str(leaf.dtype)
    if isinstance(leaf, jax.Array) and dtypes.issubdtype(leaf.dtype, dtypes.prng_key):
        return np.asarray(key_data(leaf)), str(leaf.dtype)
    array = np.asarray(leaf)
    return array, str(array.dtype)


def _type_of(leaf: Any) -> tuple[tuple[int, ...], str]:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype)
    array = np.asarray(leaf)
    return tuple(array.shape), str(array.dtype)


def _loaded(raw: "np.ndarray[Any, Any]", dtype: str) -> Any:
    if dtype.startswith("key<"):
        return typed_keys(raw, dtype)
    wanted = numpy_dtype(dtype)
    return raw if raw.dtype == wanted else raw.view(wanted)


def _read(path: str | Path) -> Mapping[str, tuple["np.ndarray[Any, Any]", str]]:
    """Raw arrays and element types by name."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            head = json.loads(bytes(file[_INDEX]))
            if head["version"] != _VERSION:
                raise ValueError(f"version {head['version']}")
            return {a["name"]: (file[f"a{i}"], str(a["dtype"])) for i, a in enumerate(head["arrays"])}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        said = "no .npz archive" if "pickle" in str(error) else str(error) or type(error).__name__
        problem = getattr(error, "strerror", None) or said
        wrong = WrongSnapshot(path=str(path), name="the file", have_=problem, rule="a file of pw.save", where=caller())
        raise PathwaysError(wrong) from None
