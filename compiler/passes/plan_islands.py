"""Defines the pass `plan-islands`. It gives every value a buffer, and makes the list of instructions of each island.
It raises an error if a device lacks memory.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from pathways.compiler.buffers.liveness import Donated, donations, lifetimes
from pathways.compiler.buffers.streams import plan_streams
from pathways.compiler.computations.temporaries import temporaries_of
from pathways.compiler.errors import OutOfMemory
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.stream_ops import PlannedStreams
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Branch, Run
from pathways.dialect.plan.memory import Peak, by_kind
from pathways.dialect.plan.nouns import Stream
from pathways.dialect.topology import readable

_Donations: TypeAlias = dict[str, Donated]
Planned: TypeAlias = tuple[tuple[Stream, Peak], ...]
"""The stream of each island, and its peak memory."""


@dataclass(frozen=True)
class PlanIslands(Pass):
    """Lays out buffers with birth, last use and size, marks donated operands, and plans the stream of each island.

    Requires: phase schedule.
    Ensures: phase plan: each buffer is freed or donated exactly once after its last use, or kept as a result or a
    constant; each send has one receive; the peak of bytes on a device is known. The streams become one pw.plan for
    each island when the module is printed or changed.
    """

    name: ClassVar[str] = "plan-islands"
    requires: ClassVar[Phase] = Phase.SCHEDULE
    ensures: ClassVar[Phase] = Phase.PLAN
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset({"computations"})
    donate: bool = True
    enforce: bool = True
    """Refuse a plan whose peak exceeds the memory stated in the topology."""

    def apply(self, program: ProgramIR, session: Session) -> None:
        donated: _Donations = {}
        temporaries: dict[str, int] = {}
        for function in program.functions:
            donated |= donations(function, lifetimes(function)) if self.donate else {}
            with program.context:
                for symbol, computation in function.computations.items():
                    _mark_donated(computation, donated.get(symbol, {}))
            # The memory that XLA needs depends on the arguments that it may overwrite.
            temporaries |= temporaries_of(function, session.analyzer)
        planned = [self._streams(function, donated, temporaries) for function in program.functions]
        if self.enforce:
            check_memory(program, planned[-1])
        note = "estimated" if session.analyzer is None else "measured"
        program.attributes["pw.temporaries"] = ir.StringAttr.get(note, program.context)
        program.unwritten = PlannedStreams([[stream for stream, _ in streams] for streams in planned])

    def _streams(self, function: ProgramIR, donated: _Donations, temporaries: dict[str, int]) -> Planned:
        return plan_streams(function, donated=donated, temporaries=temporaries, donate=self.donate)


def check_memory(program: ProgramIR, planned: Planned) -> None:
    """Raises PWC0302, for all islands at once, if a peak exceeds the memory stated in the topology."""
    problems: list[OutOfMemory] = []
    for stream, peak in planned:
        memory = program.islands[stream.island].memory
        if memory is not None and peak.bytes > memory:
            problems.append(_too_much(stream, peak, memory))
    if problems:
        raise PathwaysError(*problems)


def _too_much(stream: Stream, peak: Peak, memory: int) -> OutOfMemory:
    run = next((i for i in stream.instructions if isinstance(i, Run | Branch) and i.step == peak.step), None)
    at = "before the first step" if peak.step < 0 else f"at step {peak.step}"
    if run is not None:
        at += f" ({run.shown if isinstance(run, Run) else run.name})"
    owners = "\n".join(f"{readable(size):>10}  {owner}" for owner, size in by_kind(peak.owners))
    return OutOfMemory(
        island=stream.island,
        memory=f"{memory:,}",
        peak=f"{peak.bytes:,}",
        over=readable(peak.bytes - memory),
        at=at,
        owners=owners,
        activations=sum(size for owner, size in peak.owners if owner.startswith("activations")),
        where=None if run is None else run.where,
    )


def _mark_donated(computation: Any, donated: Donated) -> None:
    """Marks the arguments that XLA may overwrite, and the results that it may write there."""
    main = main_of(computation)
    old = described(main, "arg_attrs", len(main.type.inputs))
    new: list[Any] = []
    for i, attribute in enumerate(old):
        entries = {n.name: n.attr for n in attribute if n.name not in ("jax.buffer_donor", "tf.aliasing_output")}
        result = donated.get(i)
        if result is not None:
            entries["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), result)
        elif i in donated:
            entries["jax.buffer_donor"] = ir.BoolAttr.get(True)
        new.append(ir.DictAttr.get(entries))
    main.arg_attrs = ir.ArrayAttr.get(new)
