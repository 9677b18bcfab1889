"""Implements `pwc viz`, which draws a plan, the program of a Python source, or runs recorded by `pw.trace`. The output
is an HTML page, a picture, or text in the terminal.
"""

import shutil
import sys
from pathlib import Path

import click

from pathways.cli.errors import BadSource
from pathways.cli.process_end import left_to_the_process
from pathways.cli.source_spec import METAVAR, read_spec
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.topology import PRESETS, parse_topology
from pathways.viz.actual import Recorded, read_trace
from pathways.viz.kept_phases import kept_graphs
from pathways.viz.picture import WRITERS, Picture, writer_of
from pathways.viz.pictures import picture_of_plan, picture_of_trace

_EXAMPLE = """
\b
Examples:
  pwc viz plan.bin -o plan.html                     (open it in a browser; it needs no network)
  pwc viz plan.bin --trace trace.json -o run.html   (the recorded runs, below the plan)
  pwc viz model.py --schedule 1f1b --text           (the schedule, in the terminal)
  pwc viz plan.bin -o schedule.svg                  (or .png: needs pathways-mpmd[viz])
  pwc viz plan.bin -o flow.json                     (for Model Explorer; .dot for Graphviz)
  pwc viz trace.json -o run.html
"""


@click.command("viz", epilog=_EXAMPLE)
@click.argument("source", metavar=f"PLAN | TRACE.json | {METAVAR}")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help=f"Output file; its ending selects the format: {', '.join(WRITERS)}.")  # fmt: skip
@click.option("--text", "as_text", is_flag=True, help="Print the schedule as text.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.json",
              help="Draw the runs of this trace below the plan.")  # fmt: skip
@click.option("--topology", help=f"For sources: a spec, a TOML file, or one of {', '.join(PRESETS)}.")
@click.option("--placement", help=f"For sources: {', '.join(sorted(POLICIES))}, or FILE.py:NAME; default: spread.")
@click.option("--schedule", help=f"For sources: {', '.join((PROGRAM, *SCHEDULES))}, or a table as FILE.csv.")
def viz(
    source: str,
    output: Path | None,
    as_text: bool,
    trace: Path | None,
    topology: str | None,
    placement: str | None,
    schedule: str | None,
) -> None:
    """Draw a plan, a source or a trace: dataflow, schedule, memory, shardings and devices on one page.

    Without -o the schedule is printed.
    """
    if output is not None:
        writer_of(output)
    options = {"--topology": topology, "--placement": placement, "--schedule": schedule}
    with left_to_the_process():
        picture = _picture(source, trace, {name: value for name, value in options.items() if value is not None})
        if output is not None:
            picture.save(output)
    if as_text or output is None:
        click.echo(picture.text(shutil.get_terminal_size().columns if sys.stdout.isatty() else 0))
    if output is not None:
        click.echo(
            f"wrote    {output}" + ("   next: open it in a browser" if output.suffix == ".html" else ""), err=as_text
        )


def _picture(spec: str, trace: Path | None, options: dict[str, str]) -> Picture:
    source = read_spec(spec)
    runs = [] if trace is None else read_trace(trace)
    if source.is_python or source.is_dump:
        return _of_source(spec, options, runs)
    if options:
        have = f"{', '.join(options)} for a plan or a trace, in which this is already decided"
        advice = "omit these options, or draw the source"
        raise PathwaysError(BadSource(path=spec, have_=have, rule="a Python source or a dump", advice=advice))
    if source.path.suffix == ".json":
        if trace is not None:
            advice = f"pwc viz plan.bin --trace {trace}"
            have, rule = "a trace as the source, and --trace", "a plan as the source of --trace"
            raise PathwaysError(BadSource(path=spec, have_=have, rule=rule, advice=advice))
        return picture_of_trace(source.path)
    plan = open_plan(source.path)
    return picture_of_plan(plan, kept_graphs(plan), runs)


def _of_source(spec: str, options: dict[str, str], runs: list[Recorded]) -> Picture:
    from pathways.cli.compile import start  # imports the whole compiler, which a plan does not need
    from pathways.compiler.pass_manager import Options
    from pathways.dialect.phases import Phase
    from pathways.viz.phases import watched

    machines = parse_topology(options["--topology"]) if "--topology" in options else None
    schedule = options.get("--schedule", PROGRAM)
    compilation = start(spec, machines, None, schedule)
    chosen = Options(placement=options.get("--placement", "spread"), schedule=schedule)
    graphs = watched(compilation, Phase.PLAN, chosen)
    return picture_of_plan(compilation.plan(), graphs, runs)
