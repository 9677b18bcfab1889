"""Compiles the same program again with every pipeline schedule, or with other options, and collects the results. The
driver calls it for `--compare-schedules`, and for advice in out-of-memory errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pathways.compiler.errors import OutOfMemory, UnsuitableSchedule
from pathways.compiler.export import extract_plan
from pathways.compiler.instruments import Instrument
from pathways.compiler.machines import Machines
from pathways.compiler.pass_manager import NO_REMAT, Options, default_passes, run_passes
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.order_calls import OrderCalls
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.schedule.arrange import is_file, order_by_waits
from pathways.compiler.schedule.attribute import read_schedule
from pathways.compiler.simulate.step import simulate_step
from pathways.compiler.stream_ops import peaks_of
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.topology import readable

LIMITED = ("1f1b", "interleaved", "zero-bubble")
"""Schedules whose number of microbatches in flight does not grow with the number of microbatches."""


@dataclass(frozen=True)
class Alternative:
    """The result of one choice: its schedule and the peak bytes of each island, or the reason for its refusal."""

    name: str
    schedule: Schedule | None
    peaks: dict[str, int]
    refused: str = ""
    units: float = 0.0
    """Duration of the pipeline for equal stages: F takes one unit, B two, I and W one."""
    seconds: float = 0.0
    """The simulated time of a run; 0 unless schedules are compared."""
    waits: float = 0.0
    """The fraction of the run in which devices wait."""


def compare_schedules(
    source: ProgramIR, session: Session, options: Options, constants: Mapping[str, bytes]
) -> list[Alternative]:
    """Compiles under every schedule, and under the chosen one if it is a file, and simulates each.

    `source` is the program, of phase `trace`; it is not changed.
    """
    names = [PROGRAM, *SCHEDULES, *([options.schedule] if is_file(options.schedule) else [])]
    return [outcome(source, session, replace(options, schedule=name), name, constants) for name in names]


def outcome(
    source: ProgramIR,
    session: Session,
    options: Options,
    name: str,
    constants: Mapping[str, bytes] | None = None,
) -> Alternative:
    """Compiles with other options. With the constants of the program, it also simulates the plan."""
    program = source.copy()
    own = Session(session.topology, session.bindings, session.analyzer)
    length = _Length()
    try:
        passes = default_passes(replace(options, enforce=False, emit_schedule=""))
        run_passes(program, passes, own, instruments=[length])
    except PathwaysError as error:
        problem = error.diagnostics[0]
        if not isinstance(problem, UnsuitableSchedule):  # other errors may be bugs of the compiler
            raise
        return Alternative(name, None, {}, f"{error.code}: {problem.text(problem.title)}")
    found = Alternative(name, read_schedule(program), peaks_of(program), units=length.units)
    if constants is None:
        return found
    plan = extract_plan(program, constants)
    step = simulate_step(plan, Machines(plan.topology))
    return replace(found, seconds=step.seconds, waits=step.bubble)


@dataclass
class _Length(Instrument):
    """Measures the duration of an ordered pipeline for equal stages, before merging joins its actions."""

    units: float = 0.0

    def after(self, step: Pass, program: ProgramIR) -> None:
        if isinstance(step, OrderCalls):
            arranged = order_by_waits(program)
            calls = () if arranged.pipeline is None else arranged.pipeline.calls.values()
            self.units = max((arranged.timeline.ends[n] for numbers in calls for n in numbers), default=0.0)


def with_help(error: PathwaysError, source: ProgramIR, session: Session, options: Options) -> PathwaysError:
    """Adds to the refusal of a plan the bytes that each other choice saves on the same island."""
    found = outcome(source, session, options, "")
    if found.schedule is None or not found.schedule.microbatches:
        return error
    others = list(_others(source, session, options, found.schedule))
    helped = [
        replace(d, advice=_advice(d, found, others, session.analyzer is None)) if isinstance(d, OutOfMemory) else d
        for d in error.diagnostics
    ]
    return PathwaysError(*helped)


def _others(source: ProgramIR, session: Session, options: Options, chosen: Schedule) -> Iterator[Alternative]:
    for name in SCHEDULES:
        if name != chosen.name:
            yield outcome(source, session, replace(options, schedule=name), f"--schedule {name}")
    if options.remat == NO_REMAT:
        yield outcome(source, session, replace(options, remat="auto"), "--remat auto")
        best = replace(options, schedule="1f1b", remat="auto")
        if chosen.name != "1f1b":
            yield outcome(source, session, best, "--schedule 1f1b --remat auto")


def _advice(problem: OutOfMemory, now: Alternative, others: Sequence[Alternative], estimated: bool) -> str:
    island, limit = problem.island, int(problem.memory.replace(",", ""))
    rows: list[tuple[int, str]] = []
    peak = now.peaks.get(island, 0)
    for other in others:
        needed = other.peaks.get(island, peak)
        if needed < peak:
            fits = ", fits" if needed <= limit else ""
            rows.append((peak - needed, f"{other.name} (-{readable(peak - needed)}{fits})"))
    rows.sort(key=lambda row: -row[0])
    if estimated:
        rows.append((0, "--analyze (asks XLA for the temporaries, which are estimated here)"))
    texts = [text for _, text in rows]
    if now.schedule is not None and now.schedule.name in LIMITED:
        texts.append(f"twice the microbatches of half the size (about -{readable(problem.activations / 2)})")
    return "\n".join([*texts, "or more devices per slice, donate_argnums, islands with more memory"])
