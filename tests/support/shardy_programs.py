"""Loads programs that Shardy's MPMD compiler has imported and partitioned, with the results of plain JAX.

Each program is `mpmd.jit` of a function from Shardy's own examples and tests. NAME.import.mlir and NAME.partition.mlir
are its module after each phase. NAME.npz holds the flat arguments, the indices of the arguments that the module takes,
and the results of `jax.jit`.
"""

import io
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pathways.dialect.mlir import make_context, parse_text
from pathways.dialect.shardy_mpmd import register

ARCHIVE = Path(__file__).with_suffix(".tar.xz")
PHASES = ("import", "partition")


@dataclass(frozen=True)
class Recorded:
    """A recorded program: its module after each of `PHASES`, its flat arguments, and the expected results."""

    modules: dict[str, str]
    kept: list[int]
    arguments: list[Any]
    results: list[Any]

    @property
    def taken(self) -> list[Any]:
        """The arguments that the module takes."""
        return [self.arguments[i] for i in self.kept]


@cache
def recorded() -> dict[str, Recorded]:
    with tarfile.open(ARCHIVE) as archive:
        files = {Path(m.name).name: archive.extractfile(m) for m in archive.getmembers() if m.isfile()}
        raw = {name: file.read() for name, file in files.items() if file is not None}
    names = sorted(name.removesuffix(".npz") for name in raw if name.endswith(".npz"))
    return {name: _program(name, raw) for name in names}


def _program(name: str, raw: dict[str, bytes]) -> Recorded:
    values = np.load(io.BytesIO(raw[f"{name}.npz"]))
    numbered = [[values[f"{kind}{i}"] for i in range(_count(values, kind))] for kind in ("arg", "out")]
    modules = {phase: raw[f"{name}.{phase}.mlir"].decode() for phase in PHASES}
    return Recorded(modules, values["kept"].tolist(), *numbered)


def _count(values: Any, kind: str) -> int:
    return sum(key.startswith(kind) for key in values.files)


def module_of(text: str) -> Any:
    """Parses a module of Shardy's dialect in a new context."""
    context = make_context()
    register(context)
    return parse_text(text, "recorded", context)
