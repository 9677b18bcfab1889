"""Collects the argument values for `pwc run`: from .npy and .npz files, from `--input NAME=VALUE`, from the program's
example arguments, or random ones.
"""

import io
import json
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import jax
import ml_dtypes
import numpy as np

from pathways.api import npz
from pathways.cli.errors import BadInputs
from pathways.cli.groups import listed
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.leaves import leaf_ports
from pathways.dialect.plan.nouns import Plan, Port

SEED = 0


def collect(plan: Plan, archive: Path | None, assignments: tuple[str, ...]) -> dict[str, Any]:
    """Collects values by name, for all inputs of the plan or none. Raises PWC0803."""
    values: dict[str, Any] = {}
    if archive is not None:
        values |= _read_archive(archive)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise _bad(f"--input {assignment!r}", "NAME=@file.npy, or NAME=VALUE")
        values[name] = _read_array(Path(text[1:])) if text.startswith("@") else _read_value(name, text)
    ports = leaf_ports(plan.inputs)
    names = [p.name for p in ports]
    if unknown := [n for n in values if n not in names]:
        raise _bad(f"values for unknown inputs: {', '.join(unknown)}", f"the plan's inputs: {listed(names)}")
    values = {p.name: _convert(values[p.name], p) for p in ports if p.name in values}
    if values and (missing := [n for n in names if n not in values]):
        raise _bad(f"no values for {listed(missing)}", f"a value for each of the {len(names)} inputs")
    return values


def random_inputs(plan: Plan) -> list[Any]:
    """Makes seeded random data for every input: small numbers and indices, never negative, for roots and logarithms."""
    rng = np.random.default_rng(SEED)
    try:
        return [_random(rng, p) for p in leaf_ports(plan.inputs)]
    except MemoryError as error:
        have = f"no inputs, and not enough memory for random ones: {error}"
        raise _bad(have, "inputs that fit into the memory of this host") from None


def _random(rng: np.random.Generator, port: Port) -> Any:
    dtype, shape = numpy_dtype(port.type.dtype), port.type.shape
    if port.slot < 0:  # no computation reads it
        return np.broadcast_to(np.zeros((), dtype), shape)
    if port.type.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if port.type.dtype.startswith(("int", "uint")):
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if dtype.kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(dtype)
    return np.asarray(0.2 * rng.random(shape)).astype(dtype)


_DAMAGE = (ValueError, KeyError, zipfile.BadZipFile, EOFError, AttributeError, TypeError)
"""Exceptions of numpy for invalid files. A file that cannot be read at all raises OSError."""


def _read_archive(path: Path) -> dict[str, Any]:
    try:
        with _seekable(path) as file, np.load(file, allow_pickle=False) as loaded:
            return dict(npz.typed({name: loaded[name] for name in loaded.files}))
    except OSError as error:
        raise _bad(f"{path}: {error.strerror or error}", "an .npz archive of arrays") from None
    except _DAMAGE as error:
        why = f": {error}" if isinstance(error, ValueError) else ""
        raise _bad(
            f"{path} is not an .npz archive{why}", "an .npz archive of arrays, without pickled objects"
        ) from None


def _read_array(path: Path) -> "np.ndarray[Any, Any]":
    try:
        with _seekable(path) as file:
            loaded: Any = np.load(file, allow_pickle=False)
    except (OSError, *_DAMAGE) as error:
        raise _bad(
            f"{path}: {getattr(error, 'strerror', None) or error}", "an .npy file without pickled objects"
        ) from None
    if not isinstance(loaded, np.ndarray):
        raise _bad(f"{path} is an archive of arrays", "an .npy file; for an archive of all inputs: --inputs in.npz")
    return cast("np.ndarray[Any, Any]", loaded)


@contextmanager
def _seekable(path: Path) -> Generator[BinaryIO]:
    """Opens a file so that numpy can seek in it. A pipe is read to its end first."""
    with path.open("rb") as file:
        yield file if file.seekable() else io.BytesIO(file.read())


def _read_value(name: str, text: str) -> Any:
    try:
        value: Any = np.asarray(json.loads(text))
    except ValueError:
        value = None
    if value is None or value.dtype.kind not in "bif":
        raise _bad(f"{name}={text}", "a number, a nested list of numbers, or @file.npy")
    return value


def _convert(value: "np.ndarray[Any, Any]", port: Port) -> "np.ndarray[Any, Any]":
    """Converts numbers from the command line to the type of the plan. Raises PWC0803 if they are out of range."""
    dtype = numpy_dtype(port.type.dtype)
    whole = port.type.dtype.startswith(("int", "uint", "bool"))
    if value.dtype == np.int64 and whole:
        least, most = (0, 1) if port.type.dtype == "bool" else _range(dtype)
        if outside := [int(v) for v in value.flat if not least <= int(v) <= most]:
            raise _bad(f"{port.name} contains {outside[0]}", f"{port.dtype}: whole numbers from {least} to {most}")
        return value.astype(dtype)
    wider = value.dtype in (np.int64, np.float64) and not whole
    return value.astype(dtype) if wider else value


def _range(dtype: "np.dtype[Any]") -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def example_inputs(arguments: tuple[Any, ...]) -> list[Any] | None:
    """Returns the leaves of a program's example arguments, or None if they are only types."""
    leaves = jax.tree_util.tree_leaves(arguments)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return None
    return leaves


def _bad(have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadInputs(have_=have, rule=rule))
