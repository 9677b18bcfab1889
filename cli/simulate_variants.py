"""Compiles and simulates a source with other schedules, placements or numbers of microbatches, and formats the
comparison. `pwc simulate` calls it.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pathways.api.simulation import check_replaceable
from pathways.cli.compile import check_phase, start
from pathways.cli.errors import BadSource
from pathways.cli.source_spec import read_spec
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.pipeline.planning import Target
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.schedule.arrange import splits_backward
from pathways.compiler.simulate.estimate import Outcome
from pathways.compiler.simulate.figures import Simulated, StepFigures
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Topology

MAX_KEPT_PROGRAMS = 16
"""Maximum number of traced programs, and of placed programs, that are kept for variants which differ only in later
choices."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True)
class Variant:
    """The options of one compilation. `microbatches` replaces the number in the source; 0 keeps it."""

    options: Options
    microbatches: int = 0


NOT_TRIED = "not tried, as others with this schedule and placement were refused"


@dataclass(frozen=True)
class Compared:
    """The choices to compare: each separately, or with `sweep` all of their combinations."""

    schedules: bool
    placements: bool
    microbatches: tuple[int, ...]
    sweep: bool

    def variants(self, base: Variant) -> list[Variant]:
        """Returns the variants to simulate beside `base`."""
        schedules = [PROGRAM, *SCHEDULES] if self.schedules else []
        placements = sorted(POLICIES) if self.placements else []
        if self.sweep:
            made = [
                Variant(replace(base.options, schedule=schedule, placement=placement), count)
                for count in (base.microbatches, *self.microbatches)
                for placement in (base.options.placement, *placements)
                for schedule in (base.options.schedule, *schedules)
            ]
        else:
            made = [replace(base, options=replace(base.options, schedule=name)) for name in schedules]
            made += [replace(base, options=replace(base.options, placement=name)) for name in placements]
            made += [replace(base, microbatches=count) for count in self.microbatches]
        return [variant for variant in dict.fromkeys(made) if variant != base]

    def name(self, variant: Variant, base: Variant) -> str:
        """Names a variant by its choices: in a sweep all that are compared, otherwise the one that differs."""
        options, mine = variant.options, base.options
        parts: list[str] = []
        if self.schedules if self.sweep else options.schedule != mine.schedule:
            parts.append(f"schedule {options.schedule}")
        if self.placements if self.sweep else options.placement != mine.placement:
            parts.append(f"placement {options.placement}")
        if self.microbatches if self.sweep else variant.microbatches != base.microbatches:
            parts.append(f"{variant.microbatches or 'stated'} microbatches")
        return ", ".join(parts)


def compiler_of(
    source: str, machines: Topology | None, topology: str | None, base: Variant, space: Compared
) -> tuple[Callable[[Variant], Plan], Variant, int]:
    """Returns a function that compiles a variant of a source, `base` with the microbatches that the source states, and
    the rows of its batch (0: unknown).

    The function traces and places again only if that may change the result. Raises PWC0801 for options that a dump does
    not take: its phase has made the choice already. Raises PWC0112 for microbatches of a program that has no
    `pw.pipeline`.
    """
    replacing = base.microbatches or space.microbatches
    if replacing and read_spec(source).is_dump:
        have, advice = "other microbatches, but a dump has its microbatches", "give the source in place of the dump"
        raise PathwaysError(BadSource(path=source, have_=have, rule="a source", advice=advice))
    traced: OrderedDict[Target, Compilation] = OrderedDict()
    placed: OrderedDict[tuple[Target, object, bool], ProgramIR] = OrderedDict()

    def target_of(variant: Variant) -> Target:
        return Target.of(machines, variant.options.schedule, variant.microbatches)

    def trace(variant: Variant) -> Compilation:
        return start(source, machines, None, variant.options.schedule, variant.microbatches)

    def trace_for(variant: Variant) -> Compilation:
        return _kept(traced, target_of(variant), lambda: trace(variant))

    first, begun = _first_traced(trace_for, [base, *space.variants(base)])
    chosen = str(base.options.placement) if space.placements or base.options.placement != "spread" else None
    check_phase(Path(source), begun.program.phase, topology, chosen, None, base.options, space.schedules)
    for count in filter(None, (base.microbatches, *space.microbatches)):
        check_replaceable(count, begun.pipelines)
    stated = {table.microbatches for table in begun.pipelines}
    if space.microbatches and not base.microbatches and len(stated) == 1 and first is base:
        base = replace(base, microbatches=stated.pop())
        traced[target_of(base)] = traced[target_of(first)]

    def compile_up_to(phase: Phase, variant: Variant, source: ProgramIR) -> Compilation:
        begun, program = trace_for(variant), source.copy()
        compilation = Compilation(program, begun.constants, Session(begun.session.topology))
        if not program.phase.reached(phase):
            compilation.advance(phase, options=variant.options)
        return compilation

    def place(variant: Variant) -> ProgramIR:
        return compile_up_to(Phase.PLACE, variant, trace_for(variant).program).program

    def compiled(variant: Variant) -> Plan:
        """Compiles from the placed program, which most schedules share."""
        options = variant.options
        key = target_of(variant), options.placement, splits_backward(options.schedule)
        program = _kept(placed, key, lambda: place(variant))
        return compile_up_to(Phase.PLAN, variant, program).plan()

    return compiled, base, math.gcd(*(table.batch_rows for table in begun.pipelines))


def _kept(known: OrderedDict[_K, _V], key: _K, make: Callable[[], _V]) -> _V:
    """Returns a result, which is made if it is not kept. Keeps the `MAX_KEPT_PROGRAMS` that were used last."""
    if key not in known:
        known[key] = make()
        if len(known) > MAX_KEPT_PROGRAMS:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def _first_traced(
    trace_for: Callable[[Variant], Compilation], variants: Sequence[Variant]
) -> tuple[Variant, Compilation]:
    """Traces variants until one is not refused. Raises the error of the first one if all are refused."""
    refused: PathwaysError | None = None
    for variant in variants:
        try:
            return variant, trace_for(variant)
        except PathwaysError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def refused_row(error: PathwaysError) -> str:
    """Formats the error of a variant for a row of the comparison."""
    return f"{error.code}: {error.diagnostic.text(error.diagnostic.title)}"


def simulate_others(
    compiled: Callable[[Variant], Plan], simulated: Callable[[Plan], Simulated], base: Variant, space: Compared
) -> Iterator[tuple[str, Outcome]]:
    """Simulates the other variants, each with its name."""
    wanted = space.variants(base)
    with Activity("simulating", len(wanted), "variants") as simulating:
        for simulating.done, variant in enumerate(wanted):
            yield space.name(variant, base), outcome_of(variant, compiled, simulated)


def outcome_of(
    variant: Variant, compiled: Callable[[Variant], Plan], simulated: Callable[[Plan], Simulated]
) -> StepFigures | str:
    """Simulates a variant; returns the text of the error if it is refused."""
    try:
        return simulated(compiled(variant)).figures()
    except PathwaysError as error:
        return refused_row(error)
