"""Defines the pass `split-backward`. It cuts each backward call of a pipeline in two: input gradients, which other
stages wait for, and weight gradients. Zero-bubble schedules need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pathways.compiler.computations.split import Halves, split
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.dtypes import from_mlir
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.flow import Draft, Node, Rewriting, renumbered
from pathways.dialect.ir.functions import main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CallRecord
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class SplitBackward(Pass):
    """Cuts each backward call of a pipeline in two, I and W (zero bubble, Qi et al., 2024).

    Requires: phase trace, with actions (find-pipeline).
    Ensures: phase trace: no action B: what a backward call makes for other calls of the pipeline is made by I, the
    rest by W, which takes from I what both need.
    """

    name: ClassVar[str] = "split-backward"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.TRACE
    keeps_flow: ClassVar[bool] = True

    def apply(self, program: ProgramIR, session: Session) -> None:
        with program.context, ir.Location.unknown():
            _Splitter(program).run()


class _Splitter:
    def __init__(self, program: ProgramIR) -> None:
        self.program = program
        self.flow = program.flow
        self.halves: dict[tuple[str, tuple[int, ...]], Halves] = {}
        self.types = list(self.flow.types)
        self.rewriting = Rewriting()

    def run(self) -> None:
        leads = self._leads()
        for node in self.flow.calls():
            action = None if node.op.action is None else read_action(node.op.action)
            if action is None or action.kind != "B":
                continue
            if node.op.gathered:  # belongs to one microbatch, after the producers of its operands
                node.op.action = str(action._replace(kind="W" if not leads[node.number] else "I"))
                continue
            first = tuple(i for i, v in enumerate(node.results) if self._is_input_gradient(v, leads))
            callbacks = read_callbacks(self.program.computations[node.callee])
            if 0 < len(first) < len(node.results) and not callbacks:
                self._split(node, action, first)
            else:
                node.op.action = str(action._replace(kind="I" if first else "W"))
        flow, nodes = self.flow, self.rewriting.nodes(self.flow)
        self.program.flow = renumbered(self.program, self.types, flow.arguments, nodes, flow.returned)
        called = {node.callee for node in self.program.flow}
        for symbol in {key for key, _ in self.halves} - called:
            self.program.computations.pop(symbol).erase()

    def _leads(self) -> list[bool]:
        """Returns for each node whether a placed call of the pipeline depends on it."""
        leads = [False] * len(self.flow.nodes)
        for node in reversed(self.flow.nodes):
            onward = leads[node.number] or (bool(node.callee) and not node.op.gathered and node.op.action is not None)
            if onward:
                for value in node.operands:
                    if self.flow.makers[value] >= 0:
                        leads[self.flow.makers[value]] = True
        return leads

    def _is_input_gradient(self, value: int, leads: list[bool]) -> bool:
        nodes = self.flow.nodes
        users = (nodes[u] for u in self.flow.users[value])
        return any(leads[u.number] or (u.callee and not u.op.gathered and u.op.action is not None) for u in users)

    def _split(self, node: Node, action: Action, first: tuple[int, ...]) -> None:
        key = node.callee, first
        if key not in self.halves:
            self.halves[key] = split(self.program, node.callee, first, ("_I", "_W"))
        halves, op = self.halves[key], node.op
        operands, results = node.operands, node.results
        handed = range(len(self.types), len(self.types) + halves.handed)
        made = [results[i] for i in first]
        given = [operands[i] for i in halves.first_inputs]
        lead = self._call(op, halves.first, given, [*made, *handed], action._replace(kind="I"))
        self.types += list(map(from_mlir, main_of(self.program.computations[halves.first]).type.results))[len(made) :]
        others = [value for i, value in enumerate(results) if i not in first]
        given = [*(operands[i] for i in halves.second_inputs), *handed]
        rest = self._call(op, halves.second, given, others, action._replace(kind="W"))
        self.rewriting.instead[node.number] = lead
        self.rewriting.after[node.number] = [rest]

    def _call(self, op: Any, callee: str, operands: Sequence[int], results: Sequence[int], action: Action) -> Draft:
        half = CallRecord(op.location, callee=callee, mesh=op.mesh, action=str(action))
        return Draft(half, callee, op.mesh, operands, results)
