"""Implements `pwc simulate`, which predicts the time of a step on machines that one may not own, and what would change
it: another schedule or placement, a slower device or link.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pathways.api.simulation import times_of, trace_of
from pathways.cli.compile import check_phase, start
from pathways.cli.json_output import json_option, print_json
from pathways.cli.source_spec import read_spec
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.pipeline.planning import Target
from pathways.compiler.machines import Machines
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.simulate.durations import WhatIf
from pathways.compiler.simulate.figures import Simulated
from pathways.compiler.simulate.lost_host import LostHost
from pathways.compiler.simulate.step import simulate_step
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.files import write_whole
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import bytecode, parse
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.topology import PRESETS, Topology, parse_topology, readable

_EXAMPLE = """
\b
Examples:
  pwc simulate plan.bin --topology machines.toml
  pwc simulate model.py:step --topology paper-c --schedule 1f1b --compare-schedules
  pwc simulate plan.bin --slower island0:3=1.2 --link island0:island1=0.5
  pwc simulate plan.bin --trace predicted.json && pwc viz plan.bin --trace predicted.json -o page.html
"""


def _factor(text: str, option: str, example: str) -> tuple[str, str, float]:
    """Parses A:B=FACTOR. Raises click's error for anything else."""
    names, equals, value = text.rpartition("=")
    first, colon, second = names.rpartition(":")
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not (equals and colon and first and second and 1e-6 <= factor <= 1e6):
        raise click.BadParameter(f"{text!r} is not {example}", param_hint=option)
    return first, second, factor


def _slower(_: Any, __: Any, given: Sequence[str]) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {}
    for text in given:
        island, device, factor = _factor(text, "--slower", "ISLAND:DEVICE=FACTOR")
        if not (device.isascii() and device.isdecimal() and len(device) < 9):
            raise click.BadParameter(f"{device!r} is not the number of a device", param_hint="--slower")
        found[island, int(device)] = factor
    return found


def _links(_: Any, __: Any, given: Sequence[str]) -> dict[frozenset[str], float]:
    parsed = [_factor(text, "--link", "ISLAND:ISLAND=FACTOR") for text in given]
    return {frozenset((first, second)): factor for first, second, factor in parsed}


@click.command("simulate", epilog=_EXAMPLE)
@click.argument("source", metavar="PLAN | SRC.py[:PROGRAM]")
@click.option("--topology", help=f"islands=2,devices=4[,flops=1e12], a TOML file, or one of {', '.join(PRESETS)}.")
@click.option("--placement", default="spread", show_default=True, help="Placement policy, for a source.")
@click.option("--schedule", default=PROGRAM, show_default=True, help="Pipeline schedule, for a source.")
@click.option("--compare-schedules", is_flag=True, help="Also simulate a source under every schedule.")
@click.option("--compare-placements", is_flag=True, help="Also simulate a source under every placement policy.")
@click.option("--slower", multiple=True, callback=_slower, metavar="ISLAND:DEVICE=FACTOR",
              help="A device that takes FACTOR times as long.")  # fmt: skip
@click.option("--link", multiple=True, callback=_links, metavar="ISLAND:ISLAND=FACTOR",
              help="A link between two islands with FACTOR of its rate.")  # fmt: skip
@click.option(
    "--host-lost", type=click.IntRange(min=0), metavar="STEP", help="Also tell what a host lost after STEP costs."
)
@click.option("--snapshot-every", type=click.IntRange(min=1), default=100, show_default=True,
              help="Steps between two snapshots, for --host-lost.")  # fmt: skip
@click.option("--restart-seconds", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="Time from a loss to the next step, for --host-lost.")  # fmt: skip
@click.option("--times", type=click.Path(dir_okay=False, path_type=Path), metavar="TRACE.json",
              help="Take the times of computations from a trace that pwc run --trace has recorded.")  # fmt: skip
@click.option("--one-process", is_flag=True, help="All islands belong to one process, as without --cluster.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.json",
              help="Write the simulated step as a trace.")  # fmt: skip
@json_option
def simulate_(
    source: str,
    topology: str | None,
    placement: str,
    schedule: str,
    compare_schedules: bool,
    compare_placements: bool,
    slower: Mapping[tuple[str, int], float],
    link: Mapping[frozenset[str], float],
    host_lost: int | None,
    snapshot_every: int,
    restart_seconds: float,
    times: Path | None,
    one_process: bool,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Predict the time of one step on the machines of a topology. No devices are needed.

    A plan is simulated on the topology that it was compiled for, or on another one that has its islands.
    """
    machines = None if topology is None else parse_topology(topology)
    measured = None if times is None else times_of(times)

    def simulated(plan: Plan) -> Simulated:
        here = Machines(machines or plan.topology)
        return simulate_step(plan, here, changes=WhatIf(slower, link), measured=measured, one_process=one_process)

    given, others = read_spec(source), dict[str, Simulated | str]()
    if not (given.is_python or given.is_dump):
        if compare_schedules or compare_placements or placement != "spread" or schedule != PROGRAM:
            raise click.UsageError("a plan has its schedule and placement: give the source in place of the plan")
        found = simulated(open_plan(Path(source)))
    else:
        options = Options(placement=placement, schedule=schedule)
        compiled = _compiler(source, machines, options, topology, compare_schedules, compare_placements)
        others = dict(_others(compiled, simulated, options, compare_schedules, compare_placements))
        try:
            found = simulated(compiled(options))
        except PathwaysError:
            if any(isinstance(other, Simulated) for other in others.values()) and not as_json:
                click.echo("\n".join(_table(None, others)))
            raise
    lost = None if host_lost is None else LostHost(host_lost, snapshot_every, restart_seconds)
    if trace is not None:
        write_whole(trace, trace_of(found))
    if as_json:
        loss = {} if lost is None else {"repeated": lost.repeated, "seconds": lost.seconds(found.seconds)}
        print_json(
            _row(found)
            | {"host_lost": loss, "others": {k: v if isinstance(v, str) else _row(v) for k, v in others.items()}}
        )
        return
    click.echo(str(found))
    if lost is not None:
        click.echo(lost.text(found.seconds))
    if others:
        click.echo("\n".join(_table(found, others)))
    if trace is not None:
        click.echo(f"wrote    {trace}   next: pwc viz {source} --trace {trace} -o page.html, or ui.perfetto.dev")


def _compiler(
    source: str, machines: Topology | None, options: Options, topology: str | None, schedules: bool, placements: bool
) -> Callable[[Options], Plan]:
    """Returns a function that compiles a source with options. It traces again only if a schedule may change the cut.

    Raises PWC0801 for options that a dump does not take: its phase has made the choice already.
    """
    traced: dict[Target, tuple[Compilation, bytes]] = {}

    def trace_for(schedule: str) -> tuple[Compilation, bytes]:
        target = Target.of(machines, schedule)
        if target not in traced:
            begun = start(source, machines, None, schedule)
            traced[target] = begun, bytecode(begun.program.module.operation)
        return traced[target]

    phase = trace_for(options.schedule)[0].program.phase
    chosen = str(options.placement) if placements or options.placement != "spread" else None
    check_phase(Path(source), phase, topology, chosen, None, options, schedules)

    def compiled(options: Options) -> Plan:
        begun, raw = trace_for(options.schedule)
        program = ProgramIR(parse(raw, begun.program.context))
        compilation = Compilation(program, begun.constants, Session(begun.session.topology))
        compilation.advance(Phase.PLAN, options=options)
        return compilation.plan()

    return compiled


def _others(
    compiled: Callable[[Options], Plan],
    simulated: Callable[[Plan], Simulated],
    options: Options,
    schedules: bool,
    placements: bool,
) -> Iterator[tuple[str, Simulated | str]]:
    """Simulates other schedules and placements, each with its name; a refusal is the text of its error."""
    wanted = [replace(options, schedule=name) for name in (PROGRAM, *SCHEDULES) if schedules]
    wanted += [replace(options, placement=name) for name in sorted(POLICIES) if placements]
    for each in dict.fromkeys(wanted):
        if each == options:
            continue
        name = f"schedule {each.schedule}" if each.schedule != options.schedule else f"placement {each.placement}"
        try:
            yield name, simulated(compiled(each))
        except PathwaysError as error:
            yield name, f"{error.code}: {error.diagnostic.text(error.diagnostic.title)}"


def _table(found: Simulated | None, others: Mapping[str, Simulated | str]) -> list[str]:
    rows = ["compared with" if found is not None else "in comparison"]
    fastest = min((other.seconds for other in others.values() if isinstance(other, Simulated)), default=0.0)
    base = fastest if found is None else found.seconds
    for name, other in others.items():
        if isinstance(other, str):
            rows.append(f"  {name:<24} refused ({other})")
            continue
        peak = max((island.peak_bytes for island in other.islands), default=0)
        ratio = other.seconds / base if base else 1.0
        time = f"{other.seconds * 1e3:10.4g} ms  {ratio:6.3f}x  waits {other.bubble:6.1%}"
        rows.append(f"  {name:<24} {time}  {readable(peak)} on the fullest")
    return rows


def _row(found: Simulated) -> dict[str, Any]:
    return {
        "program": found.name,
        "seconds": found.seconds,
        "bubble": found.bubble,
        "controller_seconds": found.controller,
        "islands": [
            {"name": i.name, "devices": i.devices, "busy": i.busy, "peak_bytes": i.peak_bytes, "limit": i.limit}
            for i in found.islands
        ],
        "links": [{"source": x.source, "target": x.target, "bytes": x.bytes, "busy": x.busy} for x in found.links],
        "critical_path": [
            {
                "kind": part.task.kind,
                "name": part.task.name,
                "line": "" if part.task.where is None else f"{part.task.where.file}:{part.task.where.line}",
                "start": part.start,
                "end": part.end,
                "waited": str(part.waited),
            }
            for part in found.path
        ],
        "assumed": list(found.assumptions),
    }
