"""Reads the file of a `pw.save` snapshot and lists its arrays by name. Small arrays are in the file itself, large ones
in a folder beside it. `pw.save` and `pw.restore` use it.
"""

import contextlib
import json
import zipfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pathways.api import npz
from pathways.api.errors import WrongSnapshot
from pathways.api.fetched import typed_keys
from pathways.dialect.array_files import ArrayFile, read_array_file
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.folders import kept_folder
from pathways.dialect.jax_api import dtypes
from pathways.dialect.user_line import caller

ALL_INSIDE = 1
"""Version of a snapshot that is a single file, the only form of the first version."""
SOME_BESIDE = 2
"""Version of a snapshot that names a folder with large arrays."""
_MALFORMED = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError)


@dataclass(frozen=True, eq=False)
class Saved:
    """One array of a snapshot: its element type, and its stored values or their file."""

    values: "np.ndarray[Any, Any] | ArrayFile"
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the user sees of a large array: a key is stored as a vector of words."""
        assert isinstance(self.values, ArrayFile)
        shape = self.values.type.shape
        return shape[:-1] if self.dtype.startswith("key<") else shape


@dataclass(frozen=True, eq=False)
class SnapshotIndex:
    """The arrays of a snapshot by name, and the folder of the large ones, if there are any."""

    arrays: Mapping[str, Saved]
    folder: str | None


@contextlib.contextmanager
def open_snapshot(path: str | Path) -> Generator[tuple[Mapping[str, Saved], Path]]:
    """Opens a snapshot and keeps its folder during the block. Raises PWC0514 if it is invalid or incomplete."""
    index = read_index(path)
    with contextlib.ExitStack() as stack:
        folder = Path()
        while index.folder is not None:
            try:
                folder = stack.enter_context(kept_folder(path, index.folder))
                break
            except (OSError, ValueError) as error:
                if (now := read_index(path)).folder == index.folder:
                    missing = f"no folder {index.folder} beside the file, for its large arrays"
                    raise _wrong(path, missing if isinstance(error, FileNotFoundError) else str(error)) from None
                index = now  # the snapshot was replaced, and its old folder deleted
        yield index.arrays, folder


def folder_of(path: str | Path) -> str | None:
    """Returns the folder that a file names. None if it names none, or is not a snapshot."""
    with contextlib.suppress(OSError, *_MALFORMED), open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        return str(json.loads(bytes(file[npz.INDEX]))["folder"])
    return None


def read_index(path: str | Path) -> SnapshotIndex:
    """Reads a file written by `save` or `pwc run --outputs`. Raises PWC0514 for any other file."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if npz.INDEX not in file.files:  # results whose types numpy supports
                return SnapshotIndex({npz.key_path(n): Saved(file[n], str(file[n].dtype)) for n in file.files}, None)
            head = json.loads(bytes(file[npz.INDEX]))
            if head["version"] not in (ALL_INSIDE, SOME_BESIDE):
                raise ValueError(f"format version {head['version']}, which this release cannot read")
            folder = str(head["folder"]) if head["version"] == SOME_BESIDE else None
            rows = [(row, f"a{i}") for i, row in enumerate(head["arrays"])]
            return SnapshotIndex({row["name"]: _saved(file, row, member, folder) for row, member in rows}, folder)
    except (OSError, *_MALFORMED) as error:
        reason = "not an .npz archive" if "pickle" in str(error) else str(error) or type(error).__name__
        raise _wrong(path, getattr(error, "strerror", None) or reason) from None


def _saved(file: Any, row: Mapping[str, Any], member: str, folder: str | None) -> Saved:
    dtype = str(row["dtype"])
    if folder is None or "file" not in row:
        return Saved(file[row.get("member", member)], dtype)
    found = read_array_file(row["file"])
    stored = "uint32" if dtype.startswith("key<") else "bool" if dtype == "float0" else dtype
    if found.type.dtype != stored or (stored != dtype and dtype != "float0" and not found.type.shape):
        raise ValueError(f"a stored type {found.type} for an array of {dtype}")
    return Saved(found, dtype)


def loaded(raw: "np.ndarray[Any, Any]", dtype: str) -> tuple[Any, str]:
    """Makes an array from its bytes and type, with a description. None if the two do not match."""
    try:
        array = _as_stated(raw, dtype)
    except (TypeError, ValueError):
        return None, f"{raw.dtype} {list(raw.shape)}, for which the index states {dtype}"
    return array, f"{dtype_name(array.dtype)} {list(array.shape)}"


def dtype_name(dtype: Any) -> str:
    return "float0" if dtype == dtypes.float0 else str(dtype)


def _as_stated(raw: "np.ndarray[Any, Any]", dtype: str) -> Any:
    if dtype == "float0":
        return np.zeros(raw.shape, dtypes.float0)
    if dtype.startswith("key<"):
        return typed_keys(raw, dtype)
    wanted = numpy_dtype(dtype)
    return raw if raw.dtype == wanted else raw.view(wanted)


def _wrong(path: str | Path, problem: str) -> PathwaysError:
    rule = "a file that pw.save wrote, and the folder that it names"
    return PathwaysError(WrongSnapshot(path=str(path), name="the snapshot", have_=problem, rule=rule, where=caller()))
