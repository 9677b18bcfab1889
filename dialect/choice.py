"""Reads and writes the file choice.toml, which states how a loss is split over machines: pipeline stages, devices,
microbatches, schedule.

`pwc search` writes the file, and `pwc compile --choice` and `pw.pipeline` read it. An example:

stages = 4                 # slices of the pipeline
chunks = 1                 # stages on each slice; more than 1: interleaved
data = 8                   # devices of a slice that the rows of a microbatch are split over
model = 1                  # devices that parameters are split over
microbatches = 16
schedule = "1f1b"
remat = "no"
islands = ["island0", "island0", "island1", "island1"]   # one for each slice; if left out, placement decides
cuts = [6, 6, 6, 6]        # layers of each stage; if left out, `pw.pipeline` decides

[param_specs]              # patterns of parameter paths, and the axis that each dimension is split over
"'up'" = ["", "model"]
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadChoice

DATA_AXIS, MODEL_AXIS = AXES = ("data", "model")
"""The axes of each slice's mesh: one splits the rows of the batch, the other splits parameters."""
_MAX_COUNT = 1_000_000


@dataclass(frozen=True)
class SplitChoice:
    """Stages x data x model, microbatches, schedule and remat. Empty `islands` and `cuts` are decided later."""

    stages: int = 1
    chunks: int = 1
    data: int = 1
    model: int = 1
    microbatches: int = 1
    schedule: str = "program"
    remat: str = "no"
    islands: tuple[str, ...] = ()
    cuts: tuple[int, ...] = ()
    param_specs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def devices(self) -> int:
        """The number of devices of all slices together."""
        return self.stages * self.data * self.model

    @property
    def split(self) -> str:
        """Stages x data x model as text; interleaved stages are written as slices*chunks."""
        return f"{self.stages}{f'*{self.chunks}' if self.chunks > 1 else ''} x {self.data} x {self.model}"


def write_choice(choice: SplitChoice, remarks: Sequence[str] = ()) -> str:
    """Formats a choice as TOML, with the remarks as comments above it."""
    lines = [f"# {remark}".rstrip() for remark in remarks]
    for key in ("stages", "chunks", "data", "model", "microbatches", "schedule", "remat"):
        lines.append(f"{key} = {_toml(getattr(choice, key))}")
    lines += [f"{key} = {_toml(list(getattr(choice, key)))}" for key in ("islands", "cuts") if getattr(choice, key)]
    if choice.param_specs:
        lines += ["", "[param_specs]"]
        lines += [f"{_toml(p)} = {_toml(list(axes))}" for p, axes in choice.param_specs.items()]
    return "\n".join(lines) + "\n"


def load_choice(path: str | Path) -> SplitChoice:
    """Reads a choice from a file. Raises PWC0115."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(str(path), str(error)) from None
    return choice_of(text, str(path))


def choice_of(text: str, source: str) -> SplitChoice:
    """Parses the text of a choice. Raises PWC0115, which names `source`."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _bad(source, str(error)) from None
    known = list(SplitChoice.__dataclass_fields__)
    if unknown := sorted(set(table) - set(known)):
        raise _bad(source, f"unknown key {unknown[0]!r}: keys are {', '.join(known)}")
    if "stages" not in table or "microbatches" not in table:
        raise _bad(source, "stages= or microbatches= is missing")
    counts = {k: _count(source, k, table.get(k, 1)) for k in ("stages", "chunks", "data", "model", "microbatches")}
    schedule = _name(source, "schedule", table.get("schedule", "program"))
    remat = _name(source, "remat", table.get("remat", "no"))
    specs = _specs(source, table.get("param_specs", {}))
    islands = tuple(_name(source, "islands", n) for n in _list(source, "islands", table.get("islands", [])))
    cuts = tuple(_count(source, "cuts", n) for n in _list(source, "cuts", table.get("cuts", [])))
    choice = SplitChoice(**counts, schedule=schedule, remat=remat, islands=islands, cuts=cuts, param_specs=specs)
    if islands and len(islands) != choice.stages:
        raise _bad(source, f"islands has {len(islands)} entries for {choice.stages} stages")
    if cuts and len(cuts) != choice.stages * choice.chunks:
        raise _bad(source, f"cuts has {len(cuts)} entries for {choice.stages * choice.chunks} stages")
    return choice


def _specs(source: str, table: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise _bad(source, "param_specs is not a table: write its entries below a line [param_specs]")
    found: dict[str, tuple[str, ...]] = {}
    for pattern, axes in cast("dict[str, Any]", table).items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise _bad(source, f"{pattern!r} is not a regular expression: {error}") from None
        names = [_name(source, "param_specs", axis, empty=True) for axis in _list(source, "param_specs", axes)]
        if wrong := [name for name in names if name and name not in AXES]:
            raise _bad(source, f"param_specs of {pattern!r} name axis {wrong[0]!r}: axes are {', '.join(AXES)}")
        found[pattern] = tuple(names)
    return found


def _count(source: str, key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_COUNT:
        raise _bad(source, f"{key}={value!r} is not a whole number from 1")
    return value


def _name(source: str, key: str, value: Any, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise _bad(source, f"{key}={value!r} is not a name")
    return value


def _list(source: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _bad(source, f"{key}={value!r} is not a list")
    return cast("list[Any]", value)


def _toml(value: object) -> str:
    """Formats a value as TOML: the same as JSON with all characters kept, except that DEL must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _bad(source: str, problem: str) -> PathwaysError:
    return PathwaysError(BadChoice(source=source, problem=problem))
