"""The order of the passes, and the loop that runs them: apply, verify, tell the instruments."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pathways.compiler.errors import PassBroke, PassNeeded, PassRaised, UnknownPass, UnsuitableSchedule
from pathways.compiler.instruments import Instrument
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.find_pipeline import FindPipeline
from pathways.compiler.passes.insert_transfers import InsertTransfers
from pathways.compiler.passes.merge_calls import MergeCalls
from pathways.compiler.passes.order_calls import OrderCalls
from pathways.compiler.passes.per_device import PerDevice
from pathways.compiler.passes.place import Place
from pathways.compiler.passes.plan_islands import PlanIslands
from pathways.compiler.passes.propagate_shardings import PropagateShardings
from pathways.compiler.passes.rematerialize import Rematerialize
from pathways.compiler.passes.split_backward import SplitBackward
from pathways.compiler.placement import PlacementPolicy
from pathways.compiler.schedule import PROGRAM
from pathways.compiler.schedule.arrange import splits_backward
from pathways.compiler.verifier import verify_program
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments, InvalidIR, WrongPhase
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.verify import Changes
from pathways.dialect.phases import Phase
from pathways.dialect.user_line import where_of_exception

NO_REMAT = "no"
REMAT = (NO_REMAT, "auto", "always")

PASSES: dict[str, type[Pass]] = {
    p.name: p
    for p in (
        FindPipeline,
        SplitBackward,
        PropagateShardings,
        Place,
        InsertTransfers,
        OrderCalls,
        Rematerialize,
        MergeCalls,
        PlanIslands,
        PerDevice,
    )
}
"""Every pass by name."""


@dataclass(frozen=True)
class Options:
    """What a user may choose of the default passes."""

    placement: str | PlacementPolicy = "spread"
    schedule: str = PROGRAM
    emit_schedule: str = ""
    merge: bool = True
    remat: str = NO_REMAT
    """no, auto (where memory does not suffice) or always."""
    enforce: bool = True
    """Refuse a plan that does not fit the memory that the topology states."""
    explain: bool = False
    """Estimate every runner-up, however long it takes."""
    without: tuple[str, ...] = ()
    """The names of passes that are left out."""


def default_passes(options: Options = Options()) -> tuple[Pass, ...]:
    """The passes from `trace` to `plan`.

    Raises PWC0104 for an option that there is not, PWC0705 for such a pass, PWC0404 where a schedule needs what is left
    out.
    """
    if options.remat not in REMAT:
        rule = ", ".join(REMAT)
        bad = BadArguments(
            problem="remat says when activations are computed again",
            have_=f"remat={options.remat!r}",
            rule=rule,
            advice="remat='auto' computes them again where memory does not suffice",
        )
        raise PathwaysError(bad)
    halves = splits_backward(options.schedule)
    if halves and SplitBackward.name in options.without:
        unsuitable = UnsuitableSchedule(
            schedule=options.schedule,
            have_=f"{SplitBackward.name} left out, so that backward calls stay whole",
            rule="backward calls in two parts",
            advice=f"leave {SplitBackward.name} in, or --schedule 1f1b",
        )
        raise PathwaysError(unsuitable)
    passes = (
        # What the loop was is seen best before anything is specialized or moved.
        FindPipeline(),
        # Before shardings: what one part hands to the other gets its own.
        *([SplitBackward()] if halves else []),
        # Shardings first: placement wants to know the bytes of every shard.
        PropagateShardings(),
        # Slices get devices before transfers are cut, since a transfer's route depends on the islands.
        Place(policy=options.placement, explain=options.explain),
        # All movement explicit before anything is ordered: a transfer takes its place in the order.
        InsertTransfers(),
        # One order an island, without a cycle between islands.
        OrderCalls(schedule=options.schedule, emit=options.emit_schedule),
        # Before merging, which joins what is computed again to what needs it.
        *([Rematerialize(when=options.remat)] if options.remat != NO_REMAT else []),
        # In the final order only: what is merged can no longer be put apart.
        *([MergeCalls()] if options.merge else []),
        # Lifetimes are known only in the final order.
        PlanIslands(enforce=options.enforce),
        # A copy of what is there, for one device: behind donation, which it takes over.
        PerDevice(),
    )
    return leave_out(passes, options.without)


def leave_out(passes: Sequence[Pass], names: Sequence[str]) -> tuple[Pass, ...]:
    """The passes but those of these names; one that is not among them changes nothing. Raises PWC0705."""
    known = dict.fromkeys((*PASSES, *(p.spelled or p.name for p in passes)))
    for name in names:
        if name not in known:
            rule = "names of passes, separated by commas, without options"
            unknown = UnknownPass(
                problem="what is left out is no pass", have_=repr(name), known=", ".join(known), rule=rule
            )
            raise PathwaysError(unknown)
    return tuple(p for p in passes if (p.spelled or p.name) not in names)


def check_reaches(passes: Sequence[Pass], without: Sequence[str], phase: Phase, upto: Phase) -> None:
    """Raises PWC0711 where a pass is left out that leads to a phase on the way to `upto`, and no other leads there."""
    led_to = {ensures for requires, ensures in (step.phases() for step in passes) if requires is not ensures}
    for name, cls in PASSES.items():
        requires, ensures = cls.phases()
        leads = requires is not ensures and not phase.reached(ensures) and ensures.position <= upto.position
        if name in without and leads and ensures not in led_to:
            told = (p.value for p in (ensures, phase, upto, requires))
            raise PathwaysError(PassNeeded(name, *told))


@dataclass
class Timing:
    """Seconds spent in each pass, verification included."""

    passes: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, name: str, seconds: float) -> None:
        self.passes[name] = self.passes.get(name, 0.0) + seconds


def run_passes(
    program: ProgramIR,
    passes: Sequence[Pass],
    session: Session,
    *,
    upto: Phase = Phase.PLAN,
    instruments: Sequence[Instrument] = (),
) -> Timing:
    """Runs those of `passes` that the program still needs to reach `upto`.

    Raises PWC0703 where a pass's requirement is not met; PWC0701 where the result of a pass of the user's own breaks a
    rule, PWC0706 for whatever it raises; PWC0710 where the result of one of ours breaks a rule.
    """
    timing = Timing()
    with Activity(f"compiling {program.name}", len(passes), "passes") as compiling:
        for compiling.done, step in enumerate(passes):
            requires, ensures = step.phases()
            rewrites = requires is ensures is program.phase  # stays in its phase: runs wherever it stands
            if (program.phase.reached(ensures) and not rewrites) or ensures.position > upto.position:
                continue
            run_pass(program, step, session, timing, instruments)
    return timing


def run_pass(
    program: ProgramIR, step: Pass, session: Session, timing: Timing, instruments: Sequence[Instrument] = ()
) -> None:
    """Runs one pass on IR of exactly the phase it requires, and verifies what it made."""
    requires, ensures = step.phases()
    if program.phase is not requires:
        have, need = program.phase.value, requires.value
        raise PathwaysError(WrongPhase(what=f"the pass {step.name}", have_phase=have, need_phase=need))
    for instrument in instruments:
        instrument.before(step, program, session)
    start = time.perf_counter()
    try:
        with Activity(step.spelled or step.name):
            step.apply(program, session)
            program.phase = ensures
            if not step.keeps_flow:
                for function in program.functions:
                    function.changed()
            _verify(step, program)
    except Exception as error:
        coded = _coded(step, error)
        for instrument in instruments:
            instrument.failed(step, coded)
        if coded is error:
            raise
        raise coded from error
    timing.add(step.name, time.perf_counter() - start)
    for instrument in instruments:
        instrument.after(step, program)


def _verify(step: Pass, program: ProgramIR) -> None:
    """Raises PWC0701 for what a pass of the user's own made, PWC0710 for what one of ours did."""
    try:
        verify_program(program, _changes(step, program))
    except PathwaysError as error:
        first = error.diagnostic
        if step.spelled or not isinstance(first, InvalidIR):
            raise
        ours = PassBroke(name=step.name, op=first.op, problem=first.problem, rule=first.rule, where=first.where)
        raise PathwaysError(ours) from error


def _changes(step: Pass, program: ProgramIR) -> Changes | None:
    """What a pass of ours states that it changes; what others say is not relied on."""
    requires, _ = step.phases()
    return None if step.writes is None or step.spelled or program.bodies else Changes(requires, step.writes)


def _coded(step: Pass, error: Exception) -> Exception:
    """What a pass of the user's own raises, as PWC0706 at its line; errors of built-in ones are ours, and stay."""
    if not step.spelled or isinstance(error, PathwaysError):
        return error
    said = f"{type(error).__name__}: {error}"
    return PathwaysError(PassRaised(name=step.spelled, error=said, where=where_of_exception(error)))
