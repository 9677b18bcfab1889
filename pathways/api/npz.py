"""Stores arrays in a numpy .npz archive together with element types that numpy does not know, such as bfloat16. `pwc
run` writes results with it and reads inputs. `pw.restore` reads such archives too. Snapshots have their own writer
(`snapshots.py`).

numpy's files do not support bfloat16, float8 and int4, which become raw bytes there (`|V2`, `|V1`), and keys are stored
as words. An archive with such arrays has one more member, `pathways.json`: the type of every array as JAX names it.
`pwc run --inputs` and `pw.restore` read it; by hand it is `np.load(path)["out"].view(ml_dtypes.bfloat16)`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pathways.dialect.dtypes import is_of_numpy, numpy_dtype
from pathways.dialect.plan.nouns import Port

INDEX = "pathways.json"
_VERSION = 1
_RESULT = "out"
"""Prefix of the names of results."""


def with_types(ports: Sequence[Port], arrays: Sequence["np.ndarray[Any, Any]"]) -> dict[str, "np.ndarray[Any, Any]"]:
    """Builds the members of the archive: the arrays, and their types if numpy would lose them."""
    members = {port.name: raw(array) for port, array in zip(ports, arrays, strict=True)}
    if untold(ports):
        rows = [{"name": key_path(p.name), "dtype": p.dtype, "member": p.name} for p in ports]
        members[INDEX] = np.frombuffer(json.dumps({"version": _VERSION, "arrays": rows}).encode(), np.uint8)
    return members


def untold(ports: Iterable[Port]) -> dict[str, str]:
    """Returns, by name, the element types that numpy's own format does not keep."""
    return {p.name: p.dtype for p in ports if p.dtype != p.type.dtype or not is_of_numpy(numpy_dtype(p.type.dtype))}


def raw(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Returns an array that numpy can write and read: raw bytes if numpy does not know the type."""
    return array if is_of_numpy(array.dtype) else array.view(f"V{array.dtype.itemsize}")


def key_path(member: str) -> str:
    """Names an array in a result tree as `pw.restore` does: by its path in the tree, `.` for the tree itself."""
    below = member.removeprefix(_RESULT)
    return member if below and below[0] not in "[." else below or "."


def typed(archive: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, "np.ndarray[Any, Any]"]:
    """Returns the arrays of an archive by name, in the element types of its index, if it has one.

    Raises ValueError, KeyError or TypeError if the index is malformed.
    """
    arrays = dict(archive)
    index = arrays.pop(INDEX, None)
    if index is None:
        return arrays
    head = json.loads(bytes(index))
    if "folder" in head:
        raise ValueError(f"a snapshot with large arrays in {head['folder']}, which only pw.restore reads")
    if head["version"] != _VERSION:
        raise ValueError(f"format version {head['version']}, which this release cannot read")
    for number, row in enumerate(head["arrays"]):
        member, dtype = str(row.get("member", f"a{number}")), str(row["dtype"])
        name = member if "member" in row else str(row["name"])
        arrays[name] = _viewed(arrays.pop(member), dtype)
    return arrays


def _viewed(array: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    """Views raw bytes as the stated type. Keys, and types without values (float0), stay as they are stored."""
    if dtype.startswith("key<") or dtype == "float0":
        return array
    wanted = numpy_dtype(dtype)
    return array if array.dtype == wanted else array.view(wanted)
