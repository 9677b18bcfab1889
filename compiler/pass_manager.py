"""Defines the order of the compiler passes and runs them. After each pass it verifies the IR and notifies the
observers. The driver calls it for every compilation.
"""

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
    """The options that a user may set for the default passes."""

    placement: str | PlacementPolicy = "spread"
    schedule: str = PROGRAM
    emit_schedule: str = ""
    merge: bool = True
    remat: str = NO_REMAT
    """no, auto (if memory does not suffice) or always."""
    enforce: bool = True
    """Refuse a plan that exceeds the memory stated in the topology."""
    explain: bool = False
    """Estimate every runner-up, regardless of the time that it takes."""
    without: tuple[str, ...] = ()
    """The names of passes to leave out."""


def default_passes(options: Options = Options()) -> tuple[Pass, ...]:
    """Returns the passes from phase `trace` to `plan`.

    Raises PWC0104 for an unknown option, PWC0705 for an unknown pass, PWC0404 if a schedule needs a pass that is left
    out.
    """
    if options.remat not in REMAT:
        rule = ", ".join(REMAT)
        bad = BadArguments(
            problem=f"there is no remat mode {options.remat}",
            have_=f"remat={options.remat!r}",
            rule=rule,
            advice="remat='auto' computes activations again if memory does not suffice",
        )
        raise PathwaysError(bad)
    halves = splits_backward(options.schedule)
    if halves and SplitBackward.name in options.without:
        unsuitable = UnsuitableSchedule(
            schedule=options.schedule,
            have_=f"{SplitBackward.name} is left out, so backward calls are not split",
            rule="backward calls in two parts",
            advice=f"keep the pass {SplitBackward.name}, or use --schedule 1f1b",
        )
        raise PathwaysError(unsuitable)
    passes = (
        # First: the loop is easiest to recognize before anything is specialized or moved.
        FindPipeline(),
        # Before shardings: values that go from I to W get shardings of their own.
        *([SplitBackward()] if halves else []),
        # Before placement, which needs the bytes of every shard.
        PropagateShardings(),
        # Before transfers: the route of a transfer depends on the islands.
        Place(policy=options.placement, explain=options.explain),
        # Before ordering: transfers are part of the order.
        InsertTransfers(),
        # One order for each island, without a cycle between islands.
        OrderCalls(schedule=options.schedule, emit=options.emit_schedule),
        # Before merging, which joins repeated calls to the calls that need them.
        *([Rematerialize(when=options.remat)] if options.remat != NO_REMAT else []),
        # In the final order only: merged calls cannot be separated again.
        *([MergeCalls()] if options.merge else []),
        # Lifetimes are known only in the final order.
        PlanIslands(enforce=options.enforce),
        # After donation: the copies for one device inherit it.
        PerDevice(),
    )
    return leave_out(passes, options.without)


def leave_out(passes: Sequence[Pass], names: Sequence[str]) -> tuple[Pass, ...]:
    """Returns the passes without the named ones. A known name that is not among them is ignored. Raises PWC0705."""
    known = dict.fromkeys((*PASSES, *(p.spelled or p.name for p in passes)))
    for name in names:
        if name not in known:
            rule = "names of passes, separated by commas, without options"
            unknown = UnknownPass(
                problem="a pass to leave out does not exist", have_=repr(name), known=", ".join(known), rule=rule
            )
            raise PathwaysError(unknown)
    return tuple(p for p in passes if (p.spelled or p.name) not in names)


def check_reaches(passes: Sequence[Pass], without: Sequence[str], phase: Phase, upto: Phase) -> None:
    """Raises PWC0711 if a left-out pass leads to a phase on the way to `upto`, and no other pass leads there."""
    led_to = {ensures for requires, ensures in (step.phases() for step in passes) if requires is not ensures}
    for name, cls in PASSES.items():
        requires, ensures = cls.phases()
        leads = requires is not ensures and not phase.reached(ensures) and ensures.position <= upto.position
        if name in without and leads and ensures not in led_to:
            stated_phases = (p.value for p in (ensures, phase, upto, requires))
            raise PathwaysError(PassNeeded(name, *stated_phases))


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

    Raises PWC0703 if a pass's requirement is not met. Raises PWC0701 if the result of a user's pass breaks a rule, and
    PWC0706 for any exception of a user's pass. Raises PWC0710 if the result of a built-in pass breaks a rule.
    """
    timing = Timing()
    with Activity(f"compiling {program.name}", len(passes), "passes") as compiling:
        for compiling.done, step in enumerate(passes):
            requires, ensures = step.phases()
            rewrites = requires is ensures is program.phase  # keeps the current phase: always runs
            if (program.phase.reached(ensures) and not rewrites) or ensures.position > upto.position:
                continue
            run_pass(program, step, session, timing, instruments)
    return timing


def run_pass(
    program: ProgramIR, step: Pass, session: Session, timing: Timing, instruments: Sequence[Instrument] = ()
) -> None:
    """Runs one pass on IR of exactly the phase that it requires, and verifies the result."""
    requires, ensures = step.phases()
    if program.phase is not requires:
        have, need = program.phase.value, requires.value
        raise PathwaysError(WrongPhase(what=f"the pass {step.name}", have_phase=have, need_phase=need))
    for instrument in instruments:
        instrument.before(step, program, session)
    start = time.perf_counter()
    try:
        with Activity(step.spelled or step.name):
            program.take_back()
            if type(step) not in PASSES.values():
                program.write_streams()  # a user's pass may change them
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
    """Raises PWC0701 if the result of a user's pass breaks a rule, PWC0710 if that of a built-in pass does."""
    changes = _changes(step, program)
    try:
        verify_program(program, changes)
    except PathwaysError as error:
        first = error.diagnostic
        if step.spelled or not isinstance(first, InvalidIR):
            raise
        ours = PassBroke(name=step.name, op=first.op, problem=first.problem, rule=first.rule, where=first.where)
        raise PathwaysError(ours) from error
    program.is_verified = changes is None or step.phases()[1] is Phase.PLAN


def _changes(step: Pass, program: ProgramIR) -> Changes | None:
    """Returns the changes that a built-in pass declares; None if the declaration is missing or cannot be relied on.

    When a plan is made, only a program of which all rules were just checked is relied on.
    """
    requires, ensures = step.phases()
    is_known = program.is_verified or ensures is not Phase.PLAN
    if step.writes is None or type(step) not in PASSES.values() or program.bodies or not is_known:
        return None
    return Changes(requires, step.writes)


def _coded(step: Pass, error: Exception) -> Exception:
    """Converts an exception of a user's pass to PWC0706 at its line. Exceptions of built-in passes stay as they are."""
    if not step.spelled or isinstance(error, PathwaysError):
        return error
    text = f"{type(error).__name__}: {error}"
    return PathwaysError(PassRaised(name=step.spelled, error=text, where=where_of_exception(error)))
