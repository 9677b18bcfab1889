"""Implements `pwc simulate`, which predicts the time of a step on machines that one may not own, and what would change
it: another schedule or placement, a slower device or link.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pathways.api.simulation import times_of, trace_of
from pathways.cli.json_output import json_option, print_json
from pathways.cli.simulate_best import BestVariants
from pathways.cli.simulate_variants import Compared, Variant, compiler_of, refused_row, simulate_others
from pathways.cli.source_spec import read_spec
from pathways.cli.variants_table import MAX_ROWS, variants_table
from pathways.compiler.machines import Machines
from pathways.compiler.pass_manager import Options
from pathways.compiler.schedule import PROGRAM
from pathways.compiler.simulate.durations import WhatIf
from pathways.compiler.simulate.estimate import Estimated, Outcome
from pathways.compiler.simulate.figures import Simulated, StepFigures
from pathways.compiler.simulate.lost_host import LostHost
from pathways.compiler.simulate.step import simulate_step
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.files import write_whole
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.topology import PRESETS, parse_topology
from pathways.viz.sweep import sweep_svg

_EXAMPLE = """
\b
Examples:
  pwc simulate plan.bin --topology machines.toml
  pwc simulate model.py:step --topology paper-c --schedule 1f1b --compare-schedules
  pwc simulate model.py --compare-schedules --compare-microbatches 4,8,16 --sweep --picture sweep.svg
  pwc simulate model.py --compare-schedules --compare-microbatches 4,8,12,16,24,32,48,64 --sweep --top 10
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


def _counts(_: Any, __: Any, given: str | None) -> tuple[int, ...]:
    """Parses N,N,... Raises click's error for anything else."""
    parts = [] if given is None else [part.strip() for part in given.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) < 10**6 for part in parts):
        raise click.BadParameter(
            f"{given!r} is not a list of numbers from 1 to 999,999, as 4,8,16", param_hint="--compare-microbatches"
        )
    return tuple(dict.fromkeys(map(int, parts)))


@click.command("simulate", epilog=_EXAMPLE)
@click.argument("source", metavar="PLAN | SRC.py[:PROGRAM]")
@click.option("--topology", help=f"islands=2,devices=4[,flops=1e12], a TOML file, or one of {', '.join(PRESETS)}.")
@click.option("--placement", default="spread", show_default=True, help="Placement policy, for a source.")
@click.option("--schedule", default=PROGRAM, show_default=True, help="Pipeline schedule, for a source.")
@click.option("--compare-schedules", is_flag=True, help="Also simulate a source under every schedule.")
@click.option("--compare-placements", is_flag=True, help="Also simulate a source under every placement policy.")
@click.option(
    "--microbatches", type=click.IntRange(min=1), help="Replace the microbatches of the source's pw.pipeline."
)
@click.option(
    "--compare-microbatches", callback=_counts, metavar="N,N,...", help="Also simulate these numbers of microbatches."
)
@click.option("--sweep", is_flag=True, help="Simulate every combination of what is compared, and rank them.")
@click.option("--top", type=click.IntRange(min=1), metavar="N",
              help="Simulate a few combinations of --sweep and the N fastest; estimate the rest.")  # fmt: skip
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.svg",
              help="Draw the combinations of --sweep.")  # fmt: skip
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
    microbatches: int | None,
    compare_microbatches: tuple[int, ...],
    sweep: bool,
    top: int | None,
    picture: Path | None,
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
    if picture is not None and not sweep:
        raise click.UsageError("--picture draws the combinations of --sweep: give both")
    if sweep and not (compare_schedules or compare_placements or compare_microbatches):
        raise click.UsageError("--sweep needs --compare-schedules, --compare-placements or --compare-microbatches")
    if top and not (sweep and compare_microbatches):
        raise click.UsageError("--top estimates combinations of --sweep with --compare-microbatches: give all three")
    machines = None if topology is None else parse_topology(topology)
    measured = None if times is None else times_of(times)

    def simulated(plan: Plan) -> Simulated:
        here = Machines(machines or plan.topology)
        return simulate_step(plan, here, changes=WhatIf(slower, link), measured=measured, one_process=one_process)

    given, others, name = read_spec(source), dict[str, Outcome](), ""
    table: dict[str, Any] = {"sweep": sweep, "shown": top or MAX_ROWS}
    if not (given.is_python or given.is_dump):
        comparing = compare_schedules or compare_placements or compare_microbatches or microbatches or sweep
        if comparing or placement != "spread" or schedule != PROGRAM:
            need = "a plan has its schedule, placement and microbatches: give the source in place of the plan"
            raise click.UsageError(need)
        found = simulated(open_plan(Path(source)))
    else:
        base = Variant(Options(placement=placement, schedule=schedule), microbatches or 0)
        space = Compared(compare_schedules, compare_placements, compare_microbatches, sweep)
        compiled, base, rows = compiler_of(source, machines, topology, base, space)
        if top:
            best = BestVariants(compiled, simulated, top, rows)
            others = best.outcomes(base, space)
            table["note"] = best.note(others)
        else:
            others = dict(simulate_others(compiled, simulated, base, space))
        name = space.name(base, base)
        try:
            found = simulated(compiled(base))
        except PathwaysError as error:
            if any(isinstance(other, StepFigures) for other in others.values()):
                if as_json:
                    print_json({"others": _rows(others)})
                else:
                    click.echo("\n".join(variants_table(None, others, **table)))
                _draw(picture, source, {name: refused_row(error), **others})
            raise
    lost = None if host_lost is None else LostHost(host_lost, snapshot_every, restart_seconds)
    if as_json:
        loss = {} if lost is None else {"repeated": lost.repeated, "seconds": lost.seconds(found.seconds)}
        print_json(_row(found) | {"host_lost": loss, "others": _rows(others)})
    else:
        click.echo(str(found))
        if lost is not None:
            click.echo(lost.text(found.seconds))
        if others:
            click.echo("\n".join(variants_table(found, others, **table)))
    _draw(picture, source, {name: found, **others})
    if trace is not None:
        write_whole(trace, trace_of(found))
        hint = f"next: pwc viz {source} --trace {trace} -o page.html, or ui.perfetto.dev"
        click.echo(f"wrote    {trace}   {hint}", err=as_json)


def _draw(picture: Path | None, source: str, variants: Mapping[str, Outcome]) -> None:
    """Writes the picture of a sweep, if one is wanted."""
    if picture is not None:
        write_whole(picture, sweep_svg(Path(source).name, variants))
        click.echo(f"wrote    {picture}", err=True)


def _rows(others: Mapping[str, Outcome]) -> dict[str, Any]:
    return {name: other if isinstance(other, str) else _row(other) for name, other in others.items()}


def _row(found: StepFigures | Estimated) -> dict[str, Any]:
    if isinstance(found, Estimated):
        return {"estimated_seconds": found.seconds}
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
