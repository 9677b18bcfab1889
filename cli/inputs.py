"""Inputs of `pwc run`: from .npy and .npz files and the command line, or random."""

import io
import json
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import jax
import numpy as np

from pathways.cli.errors import BadInputs
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan import Plan, Port

SEED = 0


def collect(plan: Plan, archive: Path | None, assignments: tuple[str, ...]) -> dict[str, Any]:
    """Values by name, all inputs of the plan or none. Raises PWC0803."""
    values: dict[str, Any] = {}
    if archive is not None:
        values |= _read_archive(archive)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise _bad(f"--input {assignment!r}", "NAME=@file.npy, or NAME=VALUE")
        values[name] = _read_array(Path(text[1:])) if text.startswith("@") else _read_value(name, text)
    names = [p.name for p in plan.inputs]
    if unknown := [n for n in values if n not in names]:
        raise _bad(f"values for {', '.join(unknown)}", f"the plan's inputs: {_listed(names)}")
    values = {p.name: _convert(values[p.name], p) for p in plan.inputs if p.name in values}
    if values and (missing := [n for n in names if n not in values]):
        raise _bad(f"no values for {_listed(missing)}", f"a value for each of {len(names)} inputs")
    return values


def random_inputs(plan: Plan) -> list[Any]:
    """Seeded random data for every input: small numbers, small indices; none negative, since some are to be rooted."""
    rng = np.random.default_rng(SEED)
    return [_random(rng, p) for p in plan.inputs]


def _random(rng: np.random.Generator, port: Port) -> Any:
    dtype, shape = numpy_dtype(port.type.dtype), port.type.shape
    if port.type.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if port.type.dtype.startswith(("int", "uint")):
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if dtype.kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(dtype)
    return np.asarray(0.2 * rng.random(shape)).astype(dtype)


_DAMAGE = (ValueError, zipfile.BadZipFile, EOFError, AttributeError, TypeError)
"""What numpy raises on files that are none of its own; what cannot be read at all is an OSError."""


def _read_archive(path: Path) -> dict[str, Any]:
    try:
        with _seekable(path) as file, np.load(file, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise _bad(f"{path}: {error.strerror or error}", "an .npz archive of arrays") from None
    except _DAMAGE:
        raise _bad(f"{path} is not an .npz archive", "an .npz archive of arrays, without pickled objects") from None


def _read_array(path: Path) -> "np.ndarray[Any, Any]":
    try:
        with _seekable(path) as file:
            loaded: Any = np.load(file, allow_pickle=False)
    except (OSError, *_DAMAGE) as error:
        raise _bad(f"{path}: {getattr(error, 'strerror', None) or error}", "an .npy file without pickles") from None
    if not isinstance(loaded, np.ndarray):
        raise _bad(f"{path} is an archive of arrays", "an .npy file; all inputs by name: --inputs in.npz")
    return cast("np.ndarray[Any, Any]", loaded)


@contextmanager
def _seekable(path: Path) -> Generator[BinaryIO]:
    """A file as numpy reads it; what comes through a pipe is read to its end first."""
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
    """Numbers typed on the command line have the type that the plan wants, if it can hold them."""
    dtype = numpy_dtype(port.type.dtype)
    typed = value.dtype in (np.int64, np.float64)
    return value.astype(dtype) if typed and (value.dtype.kind == "i" or dtype.kind not in "biu") else value


def example_inputs(arguments: tuple[Any, ...]) -> list[Any] | None:
    """The leaves of a program's example arguments; None where they are only types."""
    leaves = jax.tree_util.tree_leaves(arguments)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return None
    return leaves


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f", ... ({len(names)})" if len(names) > 6 else "")


def _bad(have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadInputs(have_=have, rule=rule))
