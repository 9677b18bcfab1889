"""Collects the reason for each decision of the compiler: placement, transfers, reshards and calls. The reasons are
stored in the plan, where `pwc why` reads them.

`compiler/export.py` calls it on IR of phase `plan`. Slices and transfers carry the reason and the runner-up that their
passes wrote. A call follows its own shardings or the location of its operands. Equal decisions at several steps
(microbatches) become one record.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import Where
from pathways.dialect.ir.flow import Node, identities
from pathways.dialect.ir.losses import read_losses
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name
from pathways.dialect.memo import map_by_identity
from pathways.dialect.mlir import where_of
from pathways.dialect.plan.nouns import Decision

_AWAITED = "a computed value selects the body or ends the loop: the controller waits for it: calls use several meshes"


def decisions_of(program: ProgramIR) -> tuple[Decision, ...]:
    """Returns all decisions: losses and slices first, then the others in program order."""
    merged: defaultdict[_Decided, list[int]] = defaultdict(list)
    nodes = (decided for function in (program, *program.bodies.values()) for decided in _nodes(function))
    for decided, step in nodes:
        steps = merged[decided]
        if step is not None:
            steps.append(step)
    made = (Decision(*decided[:5], tuple(steps), *decided[5:]) for decided, steps in merged.items())
    return (*dict.fromkeys((*_losses(program), *_slices(program))), *made)


class _Decided(NamedTuple):
    """A decision without its steps, which is quick to compare."""

    kind: str
    name: str
    chosen: str
    reason: str
    runner_up: str
    bytes: int
    where: Where | None


def _losses(program: ProgramIR) -> Iterator[Decision]:
    for loss in read_losses(program.base):
        yield Decision("loss", loss.loss, loss.verdict, loss.handling, "", (), 0, None)


def _slices(program: ProgramIR) -> Iterator[Decision]:
    for symbol, op in program.slices.items():
        chosen = f"{op.island} {_range(op.device_ids or ())}"
        reason, other = op.reason or "", op.runner_up or ""
        yield Decision("slice", symbol, chosen, reason, other, (), 0, where_of(op.operation))


def _range(devices: tuple[int, ...]) -> str:
    if len(devices) > 2 and devices == tuple(range(devices[0], devices[0] + len(devices))):
        return f"[{devices[0]}..{devices[-1]}]"
    return str(list(devices))


def _nodes(program: ProgramIR) -> Iterator[tuple[_Decided, int | None]]:
    sources = _Sources(program)
    for node in program.flow.nodes:
        op = node.op
        where, step = where_of(op), op.step
        if node.callee:
            name = shown_name(op)
            chosen, reason, other = sources.call(node)
            if op.parts is None:
                yield _Decided("call", name, chosen, reason, other, 0, where), step
            for part in map(read_part, op.parts or ()):
                merged = f"merged into {name}, which is {reason}"
                yield _Decided("call", part.name, chosen, merged, other, 0, part.where), step
            continue
        if not node.is_transfer:
            name = shown_name(op)
            chosen = f"{name}: {', '.join(op.bodies)}"
            yield _Decided("branch", name, chosen, _AWAITED, "", 0, where), step
            continue
        (value,), (result,) = node.operands, node.results
        kind = "transfer" if sources.home[value] != sources.home[result] else "reshard"
        chosen = f"{sources.place(value)} -> {sources.place(result)} by {op.route}"
        name = sources.names[value]
        yield _Decided(kind, name, chosen, op.reason or "", op.runner_up or "", op.bytes or 0, where), step


class _Sources:
    """The location of each value before transfers moved it."""

    def __init__(self, program: ProgramIR) -> None:
        self.program = program
        flow = self.flow = program.flow
        self.home = map_by_identity(lambda p: "" if p is None else program.slice_of(p.mesh), flow.places)
        self.first_home = list(self.home)
        """The slice on which each value was, before transfers moved it."""
        self.names = [a.name for a in program.arguments]
        self._calls: dict[tuple[Any, ...], tuple[str, str, str]] = {}
        """The results of `call`, by the slice of a call, and by the sizes and the slices of its operands."""
        for node in flow.nodes:
            if not node.is_transfer:
                self.names += [shown_name(node.op)] * len(node.results)
            else:
                (source,), (result,) = node.operands, node.results
                self.first_home[result] = self.first_home[source]
                self.names.append(self.names[source])
        self._home, self._size = identities(self.first_home), np.array(flow.sizes, np.intp)

    def place(self, value: int) -> str:
        return f"{self.home[value]}{self.program.sharding(self.flow.place(value))}"

    def call(self, call: Node) -> tuple[str, str, str]:
        """Returns the slice of a call, the reason for it, and the slice with most of its other operands."""
        taken = self.flow.operands_of(call)
        key = call.mesh, call.op.island, call.op.gathered, self._home[taken].tobytes(), self._size[taken].tobytes()
        if key not in self._calls:
            held = dict.fromkeys((self.first_home[v] for v in call.operands), 0)
            for value in call.operands:
                held[self.first_home[value]] += self.flow.sizes[value]
            self._calls[key] = self._explained(call.mesh, call.op.island or "", bool(call.op.gathered), held)
        return self._calls[key]

    def _explained(self, mesh: str, island: str, gathered: bool, held: dict[str, int]) -> tuple[str, str, str]:
        here = self.program.slice_of(mesh)
        chosen = f"{here} on {island}, mesh {self.program.mesh(mesh)}"
        drawn = ", ".join(f"{size:,} bytes on {home}" for home, size in held.items()) or "none"
        reason = f"operations without a placement follow their data; operands: {drawn}"
        if not gathered:
            reason = f"placed by the user: its shardings, or a mesh in its code, are on {here}"
        others = {home: size for home, size in held.items() if home != here}
        if not others:
            return chosen, reason, "none: no other slice holds an operand"
        total = sum(held.values())
        second = max(others, key=lambda home: others[home])
        moving = f"{total - held[second]:,} bytes instead of {total - held.get(here, 0):,}"
        return chosen, reason, f"{second}: would receive {moving}"
