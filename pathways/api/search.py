"""Implements `pw.search`. It finds the fastest way to split a loss over machines: pipeline stages, data-parallel and
model-parallel devices, microbatches, schedule. It needs only their description, not the machines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from pathways.api.errors import NothingFits, NotSearchable
from pathways.api.found import Found
from pathways.api.process import process
from pathways.api.program import Program
from pathways.api.search_plans import CompiledStep, figures_of
from pathways.compiler.frontends.jax.pipeline.chosen import choosing, noting_calls
from pathways.compiler.frontends.jax.pipeline.pipeline import Pipelined, pipeline
from pathways.compiler.machines import ASSUMED_FLOPS, Machines
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.search.candidates import MAX_STAGES, Space, candidates
from pathways.compiler.search.cuts import layers_of
from pathways.compiler.search.patterns import spec_patterns
from pathways.compiler.search.profile import Profiles
from pathways.compiler.search.rank import Ranker, Ranking, Row, better
from pathways.compiler.search.subject import SearchedLoss
from pathways.dialect.choice import SplitChoice
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import tree_util
from pathways.dialect.topology import Topology, parse_topology
from pathways.dialect.user_line import caller

_any_jax: Any = jax


def search(
    loss: Callable[..., Any],
    *example_args: Any,
    topology: Topology | str,
    batch: int | None = None,
    batch_argnums: int | Sequence[int] = 1,
    has_aux: bool = False,
    reduce: str = "mean",
    param_specs: Any = None,
    optimizer_state_bytes: float = 8.0,
    efficiency: float | None = None,
    call_seconds: float | None = None,
    memory_gbps: float | None = None,
    max_microbatches: int = 0,
    schedules: Sequence[str] | None = None,
    top: int = 8,
    compiled: int = 3,
    only: Sequence[SplitChoice] = (),
) -> Found:
    """Finds how to split a loss over the machines of a topology, by predicted time of a training step.

    `loss` is an ordinary loss, with arguments like `example_args` (arrays or `jax.ShapeDtypeStruct`s), of which
    `batch_argnums` have the rows of the batch. It may also be a `pw.program` that calls a `pw.pipeline`. `batch` is the
    number of rows in a step; by default that of the example. All splits into stages x data x model are tried, each with
    its microbatches and schedules, and the best `top` are kept. The best `compiled` of them are compiled, and the
    figures of their plans replace the predictions. The row that is best after that is compiled, too. No devices are
    needed. With `only`, exactly these choices are tried, and each is a row.

    `param_specs` splits parameters over the axis "model", as in `pw.pipeline`; by default they are split as in
    Megatron. `optimizer_state_bytes` is the optimizer state for each parameter (Adam: 8). `efficiency` is the fraction
    of a topology's flop/s that computations reach, and `call_seconds` the overhead of each call. `memory_gbps` is the
    rate of a device's memory at which gradients accumulate. By default they are what the topology states, or else 0.5,
    20 us and 800 GB/s.

    Raises PWC0117 if there is nothing to search for, and PWC0118 if nothing fits into memory.
    """
    machines = parse_topology(topology) if isinstance(topology, str) else topology
    argnums = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    wanted = _plain(loss, example_args, argnums, _Ways(has_aux, reduce, param_specs), optimizer_state_bytes)
    subject, rows = wanted.subject, wanted.subject.rows if batch is None else batch
    _check(wanted, rows)
    _check_options(subject.name, machines, rows, top, schedules, only)
    yardstick = Machines(machines, efficiency, call_seconds, wanted.states, memory_gbps)
    space = Space(rows, machines.size, max_microbatches=max_microbatches)
    space = space if schedules is None else replace(space, schedules=tuple(schedules))
    profiles, ranking = _ranked(wanted, yardstick, space, top, only)
    if not ranking.rows:
        raise _nothing(subject, machines, ranking)
    detailed = [_detailed(row, wanted, profiles, rows) for row in ranking.rows]
    ordered = _with_plans(detailed, _step_of(wanted, rows), yardstick, compiled)
    notes = (*_assumed(yardstick, optimizer_state_bytes), *_remarks(profiles))
    tokens = subject.tokens(rows)
    dropped = tuple(ranking.dropped)
    return Found(subject.name, machines, rows, tokens, tuple(ordered), ranking.tried, dropped, notes)


@dataclass(frozen=True)
class _Ways:
    """The options of `pw.pipeline` for the loss, without its split."""

    has_aux: bool
    reduce: str
    param_specs: Any


@dataclass(frozen=True, eq=False)
class _Wanted:
    """The loss to search for, and the program that contains it, if that program is written for a choice."""

    subject: SearchedLoss
    ways: _Ways
    states: float
    """Bytes of parameters, gradients and optimizer state for each byte of parameters."""
    program: Program | None = None
    arguments: tuple[Any, ...] = ()


def _plain(
    loss: Callable[..., Any], args: tuple[Any, ...], argnums: tuple[int, ...], ways: _Ways, state_bytes: float
) -> _Wanted:
    """Extracts the plain loss from a loss, a pipeline or a program. Raises PWC0117."""
    program, program_args = None, args
    if isinstance(loss, Program):
        program, program_args = loss, args or loss.example_args
        loss, args = _pipelined_of(program, program_args)
    if isinstance(loss, Pipelined):
        many = loss.options.microbatches
        ways, argnums = _Ways(many.has_aux, many.reduce, loss.options.param_specs), loss.options.batch_argnums
        program = None if loss.has_slices else program
        loss = loss.loss
    name = getattr(loss, "__name__", type(loss).__name__)
    if not args or not all(-len(args) <= i < len(args) for i in argnums):
        have = f"{len(args)} example arguments, and batch_argnums={', '.join(map(str, argnums))}"
        rule = f"example arguments of {name}, and the positions of those that are the batch"
        raise _refuse(name, have, rule, "pw.search(loss, params, batch, ...); batch_argnums is 1 by default")
    subject = SearchedLoss(name, loss, args, argnums, caller())
    states = 2 + state_bytes * subject.parameter_count / max(1, subject.parameter_bytes)
    return _Wanted(subject, ways, states, program, program_args)


def _pipelined_of(program: Program, args: tuple[Any, ...]) -> tuple[Pipelined, tuple[Any, ...]]:
    """Returns the first `pw.pipeline` that a program calls, and the types of its arguments. Raises PWC0117."""
    with noting_calls() as noted, choosing(SplitChoice()):
        program.lower_for(process().platform, *args)
    if not noted:
        rule = "a loss, or a program that calls a pw.pipeline"
        raise _refuse(program.name, "a program that calls no pw.pipeline", rule, "pw.search(loss, params, batch, ...)")
    pipelined, arguments, keywords = noted[0]
    if keywords:
        have, rule = f"{pipelined.name} called with {', '.join(keywords)} by name", "arguments by position"
        raise _refuse(program.name, have, rule, f"call it as {pipelined.name}(params, batch)")
    return pipelined, tree_util.tree_map(_type_of, arguments)


def _check(wanted: _Wanted, rows: int) -> None:
    """Raises PWC0117 if the example cannot have this batch."""
    subject = wanted.subject
    if not subject.rows or not subject.parameters:
        have = f"a batch of {len(subject.data)} arrays and {subject.rows} rows, {len(subject.parameters)} parameters"
        rule, advice = "a batch with rows, and parameters", "set batch_argnums to the positions of the batch"
        raise _refuse(subject.name, have, rule, advice)
    if wanted.program is not None and rows != subject.rows:
        have, rule = f"batch={rows}, and a program for {subject.rows}", "the number of rows in the program's arguments"
        raise _refuse(subject.name, have, rule, "omit batch, or search with the loss in place of the program")


def _check_options(
    name: str, machines: Topology, rows: int, top: int, schedules: Sequence[str] | None, only: Sequence[SplitChoice]
) -> None:
    """Raises PWC0117 for invalid numbers, schedules and choices."""
    counts = [("batch", rows), ("top", top)]
    known = (PROGRAM, *SCHEDULES)
    for what, count in counts:
        if count < 1:
            raise _refuse(name, f"{what}={count}", "a whole number from 1", f"omit {what} to use the default")
    for schedule in (*(schedules or ()), *(c.schedule for c in only)):
        if schedule not in known:
            raise _refuse(name, f"schedule {schedule!r}", ", ".join(known), "use one of these schedules")
    for choice in only:
        if rows % choice.microbatches:
            have = f"{choice.microbatches} microbatches of {rows} rows"
            raise _refuse(name, have, "equal numbers of rows", "choose a number of microbatches that divides the rows")
        if strange := [island for island in choice.islands if island not in machines.names]:
            raise _refuse(name, f"island {strange[0]}", ", ".join(machines.names), "name islands of this topology")


def _ranked(
    wanted: _Wanted, machines: Machines, space: Space, top: int, only: Sequence[SplitChoice]
) -> tuple[Profiles, Ranking]:
    """Traces the loss and ranks all candidates, or only the given choices."""
    subject, given = wanted.subject, wanted.ways.param_specs
    ask = None if given is None else subject.ask(given)
    first = list(only or candidates(machines.topology, space))
    rows = [space.batch // c.microbatches for c in first]
    profiles = Profiles(subject, rows, min(space.places, MAX_STAGES), ask)
    places = min(space.places, len(profiles.at(min(rows)).spine), MAX_STAGES)
    narrowed = replace(space, places=places, splits_parameters=profiles.splits)
    ranker = Ranker(profiles, machines, space.batch)
    if only:
        return profiles, ranker.each(only)
    return profiles, ranker.rank(candidates(machines.topology, narrowed), top)


def _detailed(row: Row, wanted: _Wanted, profiles: Profiles, rows: int) -> Row:
    """Adds to a row's choice the cuts between its stages and the split of parameters."""
    subject, choice = wanted.subject, row.choice
    spine = profiles.at(rows // choice.microbatches, choice.model).spine
    specs: dict[str, tuple[str, ...]] = {}
    if choice.model > 1 and wanted.ways.param_specs is None:
        dims = profiles.split(choice.model).dims
        specs = spec_patterns(subject.names, dims, [i for i in subject.parameters if i not in dims])
    return replace(row, choice=replace(choice, cuts=layers_of(spine, row.places), param_specs=specs))


def _step_of(wanted: _Wanted, rows: int) -> CompiledStep:
    """Returns the program to compile: the user's own, or the loss with gradients, and the optimizer-state size."""
    subject, ways = wanted.subject, wanted.ways
    if wanted.program is not None:
        program = wanted.program
        return CompiledStep(lambda _: program, wanted.arguments, 0.0)

    def make(choice: SplitChoice) -> Program:
        pipelined = pipeline(
            subject.loss,
            choice=choice,
            batch_argnums=subject.batch_argnums,
            has_aux=ways.has_aux,
            reduce=ways.reduce,
            param_specs=ways.param_specs,
        )
        with_gradients: Any = _any_jax.value_and_grad(pipelined, subject.floating_argnums, ways.has_aux)
        with_gradients.__name__ = subject.name
        return Program(with_gradients)

    return CompiledStep(make, subject.arguments_at(rows), wanted.states - 2)


def _with_plans(rows: Sequence[Row], step: CompiledStep, machines: Machines, compiled: int) -> list[Row]:
    """Adds the figures of their plans to the best few rows, and then to the best row until it has them."""
    found = list(rows)
    for i in range(min(compiled, len(found))):
        found[i] = replace(found[i], plan=figures_of(found[i], step, machines))
    found.sort(key=better)
    while compiled and found[0].plan is None:
        found[0] = replace(found[0], plan=figures_of(found[0], step, machines))
        found.sort(key=better)
    return found


def _assumed(machines: Machines, state_bytes: float) -> list[str]:
    islands = machines.topology.islands
    rate, call, memory = machines.figures()
    if any(i.flops is None for i in islands):
        rate += f" ({ASSUMED_FLOPS:.0e} a device, if the topology states none)"
    notes = [f"assumed: {rate}, {call}, {state_bytes:g} bytes of optimizer state a parameter, {memory}"]
    if any(i.memory is None for i in islands):
        notes.append("memory is not limited on islands for which the topology states none")
    return notes


def _remarks(profiles: Profiles) -> list[str]:
    linear = "linear in the rows of the batch" if profiles.linear else "not linear in the rows of the batch"
    return [f"flops and bytes are {linear}: {profiles.traces} traces"]


def _nothing(subject: SearchedLoss, topology: Topology, ranking: Ranking) -> PathwaysError:
    found = [f"{d.count} splits {d.reason}; closest (stages x data x model): {d.closest}" for d in ranking.dropped]
    have = "\n".join(found) or "no split divides the batch"
    return PathwaysError(NothingFits(loss=subject.name, topology=str(topology), have_=have, where=caller()))


def _refuse(name: str, have: str, rule: str, advice: str) -> PathwaysError:
    return PathwaysError(NotSearchable(loss=name, have_=have, rule=rule, advice=advice, where=caller()))


def _type_of(leaf: Any) -> Any:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf
