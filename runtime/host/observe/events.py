"""Converts the times that a host has recorded for `pw.trace` to JSON, and reads them back in the client, with checks.

`HostObservers` writes, and the cluster recorder of the client reads. Both sides have the plan of a run. A launch is
named by the step of its computation in that plan, in the program or in a body.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.observe.perfetto import DeviceSpan, LaunchSpan, Moved, Recording

Row: TypeAlias = Sequence[int]
_WIDTHS = {"launches": 7, "moves": 5, "spans": 4}
"""The kinds of rows, and the number of integers in each."""
_KINDS: tuple[Literal["receive", "copy"], ...] = ("receive", "copy")
_PROGRAM = -1
"""Stands for the program itself in place of the number of a body."""


def write_events(found: Recording, plans: Mapping[int, Plan]) -> bytes:
    """Writes the recording of one island. `plans`: the whole plan of each run, by number."""
    bodies = {id(plan): _bodies(plan) for plan in plans.values()}
    launches = [
        (la.launch, la.number, la.base, bodies[id(plans[la.number])][id(la.run)], la.run.step, la.begin, la.end)
        for la in found.launches
        if id(la.run) in bodies[id(plans[la.number])]
    ]
    moves = [(m.number, _KINDS.index(m.kind), m.step, m.begin, m.end) for m in found.moves]
    spans = [(s.launch, s.position, s.begin, s.end) for s in found.spans]
    return json.dumps({"launches": launches, "moves": moves, "spans": spans}, separators=(",", ":")).encode()


def _bodies(plan: Plan) -> dict[int, int]:
    """Maps each computation of a plan to its body; by identity, since partitions of a plan share its instructions."""
    found: dict[int, int] = {}
    for number, streams in enumerate(plan.all_streams, _PROGRAM):
        found.update((id(i), number) for s in streams for i in s.instructions if isinstance(i, Run))
    return found


@dataclass(eq=False)
class EventReader:
    """Reads the recordings of one controller's hosts. Drops events of runs whose plans it does not know."""

    plans: Mapping[int, Plan]
    _known: dict[tuple[int, int], Plan] = field(default_factory=dict[tuple[int, int], Plan])
    """The plans of bodies, by the identity of the whole plan and the number of the body."""
    _runs: dict[tuple[int, str], dict[int, Run]] = field(default_factory=dict[tuple[int, str], dict[int, Run]])
    """The computations of an island by step, by the identity of a plan."""

    def read(self, raw: bytes, island: str, ahead: int, number: int) -> Recording:
        """Reads the output of `write_events`. Raises ValueError for anything else.

        `ahead`: nanoseconds by which the host's clock is ahead of this one. `number`: a number unique to the host.
        """
        rows = _rows(raw)
        launches: dict[int, LaunchSpan] = {}
        for launch, run, base, body, step, begin, end in rows["launches"]:
            if run not in self.plans:
                continue
            plan = self._plan(self.plans[run], body)
            instruction = self._runs_of(plan, island).get(step)
            if instruction is None:
                raise ValueError(f"{plan.name} has no step {step} on {island}")
            positions = plan.meshes[instruction.mesh].devices
            own = -1 - run if body == _PROGRAM else (base << 16) + number  # only the program runs on all hosts
            launches[launch] = LaunchSpan(
                launch, run, own, island, positions, instruction, plan, begin - ahead, end - ahead
            )
        moves = [
            Moved(run, island, _kind(kind), step, begin - ahead, end - ahead)
            for run, kind, step, begin, end in rows["moves"]
            if run in self.plans
        ]
        spans: list[DeviceSpan] = []
        for launch, position, begin, end in rows["spans"]:
            if launch in launches:
                if position not in launches[launch].positions:
                    raise ValueError(f"launch {launch} has no device {position}")
                spans.append(DeviceSpan(launch, island, position, begin - ahead, end - ahead))
        return Recording((), list(launches.values()), moves, spans)

    def _plan(self, plan: Plan, body: int) -> Plan:
        if body == _PROGRAM:
            return plan
        if not 0 <= body < len(plan.bodies):
            raise ValueError(f"{plan.name} has no body {body}")
        key = id(plan), body
        if key not in self._known:
            self._known[key] = plan.of_body(body)
        return self._known[key]

    def _runs_of(self, plan: Plan, island: str) -> dict[int, Run]:
        key = id(plan), island
        if key not in self._runs:
            instructions = (i for s in plan.streams if s.island == island for i in s.instructions)
            self._runs[key] = {i.step: i for i in instructions if isinstance(i, Run)}
        return self._runs[key]


def _kind(number: int) -> Literal["receive", "copy"]:
    if not 0 <= number < len(_KINDS):
        raise ValueError(f"a transfer of kind {number}")
    return _KINDS[number]


def _rows(raw: bytes) -> dict[str, list[Row]]:
    try:
        read: Any = json.loads(raw)
    except RecursionError:
        raise ValueError("lists are nested too deeply") from None
    if not isinstance(read, dict) or set(cast("dict[str, Any]", read)) != set(_WIDTHS):
        raise ValueError("its kinds of rows are unknown")
    for kind, width in _WIDTHS.items():
        rows = cast("dict[str, Any]", read)[kind]
        if not isinstance(rows, list) or not all(_is_row(row, width) for row in cast("list[Any]", rows)):
            raise ValueError(f"{kind} must be rows of {width} integers")
    return cast("dict[str, list[Row]]", read)


def _is_row(row: Any, width: int) -> bool:
    if not isinstance(row, list):
        return False
    numbers = cast("list[Any]", row)
    whole = len(numbers) == width and all(type(n) is int and abs(n) < 1 << 63 for n in numbers)
    return whole and numbers[-2] <= numbers[-1]
