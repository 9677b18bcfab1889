"""Implements `pw.save` and `pw.restore`, for checkpoints. They write a pytree of arrays to a file and read it back,
onto any devices and with any sharding. Arrays are found by their path in the tree.

The file is an .npz archive of numpy without pickles. It has one member for each array, named by its key path, and an
index of element types. Element types that numpy does not support are stored as integers of the same size. Large arrays
are in a folder beside the file (dialect/array_files.py), which the file names. The processes with the devices write and
read them shard by shard. Such arrays therefore never pass through this process if the islands are in others.
"""

import contextvars
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import numpy as np

from pathways.api.array import Array
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.api.errors import WrongSnapshot
from pathways.api.npz import INDEX
from pathways.api.process import process
from pathways.api.snapshot_index import ALL_INSIDE, SOME_BESIDE, Saved, dtype_name, folder_of, loaded, open_snapshot
from pathways.api.snapshot_pieces import LeafPart, buffers_of, common_part, leaf_parts
from pathways.api.snapshot_places import places_of, virtual_sharding_of
from pathways.dialect.array_files import ArrayFile, chunk_of
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, is_of_numpy, is_stored_as_named
from pathways.dialect.errors import DamagedArray
from pathways.dialect.files import is_stream, whole_file
from pathways.dialect.folders import bytes_in, new_folder, remove_unnamed
from pathways.dialect.jax_api import dtypes, key_data, tree_util
from pathways.dialect.plan.nouns import Port
from pathways.dialect.user_line import caller, on_behalf_of
from pathways.runtime.client.saved_buffers import BufferPlace, SavedAs, read_buffer, write_array
from pathways.runtime.client_state import current_client
from pathways.runtime.threads import ThreadPool

LARGE_SNAPSHOT_BYTES = 1 << 20
"""Arrays of at least this many bytes are stored in the folder."""
_MAX_CONCURRENT_ARRAYS = 4
"""Number of arrays that are written or read concurrently."""
_T = TypeVar("_T")


def save(tree: Any, path: str | Path) -> int:
    """Writes a pytree of arrays (`pw.Array`, `jax.Array`, numpy, Python numbers). Returns the bytes written.

    Waits for the arrays. Arrays of 1 MiB and more go to a folder beside the file, NAME.arrays-..., each from its own
    devices. Hosts in other processes write theirs themselves. The file is written last: either it and its folder are
    complete, or the previous file stays with its folder. Raises the errors of reading the arrays, PWC0606 if something
    cannot be written, PWC0514 for leaves that are not arrays.
    """
    leaves, _ = tree_util.tree_flatten_with_path(tree)
    members: dict[str, np.ndarray[Any, Any]] = {}
    rows: list[dict[str, Any]] = []
    large: list[tuple[ArrayFile, Callable[[Path], None]]] = []
    one_file = is_stream(path)
    for number, (keys, leaf) in enumerate(leaves):
        name = tree_util.keystr(keys) or "."
        if not one_file and (file := _large(leaf, f"a{number}")) is not None:
            large.append((file, _writer(leaf, file)))
            rows.append({"name": name, "dtype": _dtype_of(leaf), "file": file.as_json()})
            continue
        stored = _stored(leaf)
        if stored.dtype.kind in "USOMm":
            have = f"a {type(leaf).__name__}, which numpy stores as {stored.dtype}"
            rule = "arrays, numbers and typed PRNG keys"
            raise PathwaysError(WrongSnapshot(path=str(path), name=name, have_=have, rule=rule, where=caller()))
        rows.append({"name": name, "dtype": _dtype_of(leaf)})
        members[f"a{number}"] = stored if is_of_numpy(stored.dtype) else stored.view(f"u{stored.dtype.itemsize}")

    def is_named(folder: str) -> bool:
        return folder_of(path) == folder

    if not large:
        _write(path, {"version": ALL_INSIDE, "arrays": rows}, members)
        remove_unnamed(path, is_named)
        return Path(path).stat().st_size
    with new_folder(path, is_named) as folder:
        for file, _ in large:
            file.create(folder)
        _each([lambda write=write: write(folder) for _, write in large])
        size = bytes_in(folder)
        _write(path, {"version": SOME_BESIDE, "folder": folder.name, "arrays": rows}, members)
    remove_unnamed(path, is_named)
    return size + Path(path).stat().st_size


def restore(tree: Any, path: str | Path) -> Any:
    """Reads a file written by `save` or `pwc run --outputs` into the structure of `tree`.

    The leaves, arrays or `jax.ShapeDtypeStruct`s, define shape and element type. Returns host arrays, which programs
    move to their devices, whatever topology they were saved on. Typed keys stay typed keys. A large array (see `save`)
    becomes a `pw.Array` if its leaf is one, or is a `jax.ShapeDtypeStruct` with a sharding on virtual devices. The
    processes with these devices read it. Raises PWC0514 with every leaf that does not match, PWC0615 if the folder is
    damaged.
    """
    leaves, structure = tree_util.tree_flatten_with_path(tree)
    wrong: list[WrongSnapshot] = []
    out: list[Any] = []
    beside: dict[int, Saved] = {}
    with open_snapshot(path) as (found, folder):
        for number, (keys, leaf) in enumerate(leaves):
            name = tree_util.keystr(keys) or "."
            shape, dtype = _type_of(leaf)
            have = found.get(name)
            if have is not None and isinstance(have.values, ArrayFile):
                array, got = None, f"{have.dtype} {list(have.shape)}"
                beside[number] = have
                fits = have.shape == shape and have.dtype == dtype
            else:
                array, got = (None, "nothing") if have is None else loaded(cast("Any", have.values), have.dtype)
                fits = array is not None and tuple(array.shape) == shape and dtype_name(array.dtype) == dtype
            if not fits:
                need = f"{dtype} {list(shape)}"
                wrong.append(WrongSnapshot(path=str(path), name=name, have_=got, rule=need, where=caller()))
            out.append(array)
        if wrong:
            raise PathwaysError(*wrong)
        parts = {n: leaf_parts(leaves[n][1]) for n in beside}
        places = places_of({(n, k): part.leaf for n, found in parts.items() for k, part in enumerate(found)})
        work = [
            _reader(folder, leaves[n], saved, parts[n], [places.get((n, k)) for k in range(len(parts[n]))])
            for n, saved in beside.items()
        ]
        for number, array in zip(beside, _each(work), strict=True):
            out[number] = array
    return tree_util.tree_unflatten(structure, out)


def _large(leaf: Any, name: str) -> ArrayFile | None:
    """Returns the file that a leaf will have in the folder; None if the leaf is not stored there."""
    if getattr(leaf, "nbytes", 0) < LARGE_SNAPSHOT_BYTES:
        return None
    if isinstance(leaf, Array):
        type_ = leaf.stored_type
        part = common_part([buffer.sharding.shard_shape(buffer.type.shape) for buffer in buffers_of(leaf)])
    else:
        stored = _stored(leaf)
        if not stored.dtype.isnative or not is_stored_as_named(str(stored.dtype)):
            return None
        type_ = ArrayType(stored.shape, str(stored.dtype))
        part = stored.shape
    return ArrayFile(name, type_, chunk_of(type_, part))


def _writer(leaf: Any, file: ArrayFile) -> Callable[[Path], None]:
    if not isinstance(leaf, Array):
        return lambda folder: file.write(folder, file.whole, _stored(leaf))

    def write(folder: Path) -> None:
        for part in leaf_parts(leaf):
            part.leaf.lend(functools.partial(write_array, folder=folder, file=part.of(file)))

    return write


def _reader(
    folder: Path, keyed: tuple[Any, Any], saved: Saved, parts: Sequence[LeafPart], places: Sequence[BufferPlace | None]
) -> Callable[[], Any]:
    """Prepares the read of a large array: to its devices, one place for each part, or to this process."""
    keys, leaf = keyed
    name = tree_util.keystr(keys) or "."
    file = cast("ArrayFile", saved.values)

    def read_part(part: LeafPart, place: BufferPlace) -> Array:
        mine = part.of(file)
        saved_as = SavedAs(folder, mine, name, saved.dtype)
        handle = read_buffer(process().controller, current_client.get(), saved_as, place)
        island = handle.buffer.origin[1]
        port = Port(name, mine.type, saved.dtype, bool(getattr(leaf, "weak_type", False)), island, 0)
        return Array(handle, port, virtual_sharding_of(part.leaf))

    def read() -> Any:
        try:
            there = [place for place in places if place is not None]
            if len(there) < len(parts):
                return loaded(file.read(folder, file.whole), saved.dtype)[0]
            arrays = [read_part(*one) for one in zip(parts, there, strict=True)]
        except PathwaysError as error:
            if not isinstance(error.diagnostic, DamagedArray):
                raise
            raise PathwaysError(replace(error.diagnostic, name=name, where=caller())) from None
        if parts[0].axis is None:
            return arrays[0]
        port = Port(name, file.type, saved.dtype, arrays[0].weak_type, "", 0)
        return ArrayInPieces(arrays, parts[0].axis, port)

    return read


def _each(work: Sequence[Callable[[], _T]]) -> list[_T]:
    """Runs work concurrently, with this thread's client and the user's line of this call."""
    if not work:
        return []
    line = caller()

    def do(one: Callable[[], _T]) -> _T:
        with on_behalf_of(line):
            return one()

    with ThreadPool(_MAX_CONCURRENT_ARRAYS, "pathways-snapshot") as pool:
        begun = [pool.submit(contextvars.copy_context().run, do, one) for one in work]
        try:
            return [one.result() for one in begun]
        finally:
            for one in begun:
                one.cancel()


def _write(path: str | Path, head: dict[str, Any], members: dict[str, "np.ndarray[Any, Any]"]) -> None:
    with whole_file(path) as file:
        np.savez(file, **{INDEX: np.frombuffer(json.dumps(head).encode(), np.uint8)}, **cast("Any", members))


def _stored(leaf: Any) -> "np.ndarray[Any, Any]":
    """Copies a leaf to the host in its stored form."""
    if isinstance(leaf, Array):
        return leaf.stored()
    if isinstance(leaf, jax.Array) and dtypes.issubdtype(leaf.dtype, dtypes.prng_key):
        return np.asarray(key_data(leaf))
    return np.asarray(leaf)


def _dtype_of(leaf: Any) -> str:
    if isinstance(leaf, jax.Array) and dtypes.issubdtype(leaf.dtype, dtypes.prng_key):
        return str(leaf.dtype)
    return dtype_name(leaf.dtype if isinstance(leaf, Array) else np.asarray(leaf).dtype)


def _type_of(leaf: Any) -> tuple[tuple[int, ...], str]:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), dtype_name(leaf.dtype)
    array = np.asarray(leaf)
    return tuple(array.shape), dtype_name(array.dtype)
