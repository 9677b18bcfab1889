"""Implements `pwc compile`, which compiles a Python source to a plan: a file with the compiled program. It also
continues from a dump of IR, and can stop after any compilation phase.
"""

import time
from pathlib import Path

import click

from pathways.api.process import analyzer, host_topology, process
from pathways.api.summary import compile_summary
from pathways.cli.comparison import comparison
from pathways.cli.errors import BadSource
from pathways.cli.ir_options import IrOptions, ir_options, without_option
from pathways.cli.source import load_program, lower_program
from pathways.cli.source_spec import METAVAR, read_spec
from pathways.cli.why import render
from pathways.compiler.driver import Compilation, read_dump
from pathways.compiler.emit.forms import FORMS
from pathways.compiler.frontends.jax.pipeline.chosen import choosing
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.pass_manager import NO_REMAT, REMAT, Options
from pathways.compiler.pass_text import read_passes
from pathways.compiler.passes.base import Session
from pathways.compiler.placement import POLICIES
from pathways.compiler.placement.find import LAYOUT
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.schedule.arrange import splits_backward
from pathways.dialect.activities import Activity
from pathways.dialect.choice import load_choice
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotWrite
from pathways.dialect.files import write_whole
from pathways.dialect.mlir import text
from pathways.dialect.phases import Phase
from pathways.dialect.plan.plan_file import save_plan
from pathways.dialect.platforms import PLATFORMS, platform_named
from pathways.dialect.topology import PRESETS, Topology, parse_topology

_EXAMPLE = """
\b
Examples:
  pwc compile samples/train_lm.py -o plan.bin
  pwc compile model.py:step --topology islands=2,devices=4 --dump-phases-to dumps -o plan.bin
  pwc compile samples/train_lm.py --schedule 1f1b --compare-schedules
  pwc compile dumps/03.place.mlir -o plan.bin
  pwc compile model.py --schedule 1f1b --emit mpmd -o model.mpmd.mlir
"""


@click.command("compile", epilog=_EXAMPLE)
@click.argument("source", metavar=f"{METAVAR} | DUMP.mlir")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the plan, or for the output of --emit.",
)
@click.option(
    "--topology",
    help=f"islands=2,hosts=1,devices=4[,kind=K][,memory=16GiB], a TOML file, or one of {', '.join(PRESETS)}.",
)
@click.option("--platform", type=click.Choice(list(PLATFORMS)), help="Default: the platform of this host.")
@click.option("--placement", help=f"{', '.join(sorted(POLICIES))}, or FILE.py:NAME; default: spread.")
@click.option("--compile-to", type=click.Choice([p.value for p in Phase]), default="plan", show_default=True,
              help="Stop after this phase, and print its IR.")  # fmt: skip
@click.option("--emit", type=click.Choice(list(FORMS)),
              help="Write no plan, but the scheduled program: in Shardy's MPMD dialect, or as IFRT IR.")  # fmt: skip
@click.option("--dump-phases-to", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write NN.phase.mlir for every phase, and the constants.")  # fmt: skip
@click.option("--with-phases", is_flag=True, help="Keep the dumps in the plan, for pwc inspect --ir.")
@click.option("--layout", help='Assign stages to islands: "embed*1 block*4 | block*4 head", one slice each.')
@click.option("--pass-pipeline", help="Passes to run in place of the default ones; FILE.py:NAME for one of your own.")
@without_option
@click.option("--schedule", help=f"{', '.join((PROGRAM, *SCHEDULES))}, or a table as FILE.csv; default: program.")
@click.option("--choice", type=click.Path(dir_okay=False), metavar="FILE.toml",
              help="File from pwc search: schedule, remat, and slices for a pw.pipeline without slices.")  # fmt: skip
@click.option("--emit-schedule", type=click.Path(dir_okay=False), metavar="FILE.csv",
              help="Write the order of calls: one row per slice, cells like 0F3.")  # fmt: skip
@click.option(
    "--compare-schedules", is_flag=True, help="Also print step time, bubble and memory of all other schedules."
)
@click.option("--no-merge", is_flag=True, help="Do not merge calls into one executable.")
@click.option("--remat", type=click.Choice(REMAT), help="auto: recompute activations that would not fit into memory.")
@click.option("--analyze", is_flag=True, help="Ask XLA for the temporaries of every executable; slow.")
@click.option("--with-executables", is_flag=True, help="Store executables for machines like this one in the plan.")
@click.option("--explain", is_flag=True, help="Print every decision, its reason and its runner-up.")
@ir_options
def compile_(
    source: str,
    output: Path | None,
    topology: str | None,
    platform: str | None,
    placement: str | None,
    compile_to: str,
    emit: str | None,
    dump_phases_to: Path | None,
    with_phases: bool,
    layout: str | None,
    pass_pipeline: str | None,
    without: tuple[str, ...],
    schedule: str | None,
    choice: str | None,
    emit_schedule: str | None,
    compare_schedules: bool,
    no_merge: bool,
    remat: str | None,
    analyze: bool,
    with_executables: bool,
    explain: bool,
    ir_options: IrOptions,
) -> None:
    """Compile a program, or a dump of IR, to a plan.

    A source is compiled for its example_args. Without --topology the plan is for one island per slice on CPU, and for
    the host's own devices on other platforms.
    """
    machines = parse_topology(topology) if topology is not None else None
    if layout is not None and placement is not None:
        raise click.UsageError("--layout is a placement: omit --placement")
    if emit is not None and (compile_to != Phase.PLAN or with_phases or with_executables):
        raise click.UsageError("--emit writes no plan: omit --compile-to, --with-phases and --with-executables")
    split = None if choice is None else load_choice(choice)
    ordering = any((choice, schedule, emit_schedule, compare_schedules, no_merge, remat))
    if pass_pipeline is not None and (layout is not None or placement is not None or ordering):
        example = "place{policy=optimal},...,order-calls{schedule=1f1b}"
        raise click.UsageError(f"with --pass-pipeline, set the options of the passes in it: {example}")
    options = Options(
        placement=f"{LAYOUT}{layout}" if layout is not None else placement or "spread",
        schedule=schedule or (PROGRAM if split is None else split.schedule),
        emit_schedule=emit_schedule or "",
        merge=not no_merge,
        remat=remat or (NO_REMAT if split is None else split.remat),
        explain=explain,
        without=without,
    )
    passes = None if pass_pipeline is None else read_passes(pass_pipeline)
    if output is not None and not output.parent.is_dir():
        raise PathwaysError(CannotWrite(path=str(output), problem=f"no folder {output.parent}"))
    with choosing(split) as taken, Activity(f"preparing {source}"):
        compilation = start(source, machines, platform, options.schedule)
    if split is not None and not taken:
        raise click.UsageError(
            "--choice needs a pw.pipeline(loss) with neither slices nor choice; the program has none"
        )
    upto = Phase(compile_to) if emit is None else Phase.SCHEDULE
    here = compilation.program.phase
    check_phase(Path(source), here, topology, placement, layout, options, compare_schedules)
    if analyze:
        compilation.session.analyzer = analyzer()
    others = compilation.compare(options) if compare_schedules else []
    if here.position > upto.position:
        raise _too_late(Path(source), here, f"--compile-to {upto}" if emit is None else f"--emit {emit}")
    keep = dump_phases_to is not None or with_phases
    compilation.advance(
        upto,
        passes=passes,
        options=options,
        keep_dumps=keep,
        instruments=ir_options.instruments(always_save=True),
    )
    ir_options.report(compilation.timing)
    if dump_phases_to is not None:
        for path in compilation.write_dumps(dump_phases_to):
            click.echo(f"dumped   {path}", err=True)
    if emit is not None:
        _emit_ir(compilation.emit(emit), output)
        return
    if upto is not Phase.PLAN:
        _emit_ir(text(compilation.program.read_module()), output)
        return
    plan = compilation.plan(with_phases=with_phases)
    click.echo(compile_summary(plan, compilation.timing))
    for stages in compilation.pipelines:
        click.echo(stages)
    if others:
        click.echo(comparison(others))
    if explain:
        click.echo(render(plan.decisions))
    if output is not None:
        plan = process().with_executables(plan) if with_executables else plan
        size = save_plan(plan, output)
        click.echo(f"wrote    {output} ({size:,} bytes)   next: pwc run {output} | pwc inspect {output}")
    else:
        click.echo("wrote    nothing: no -o plan.bin")


def check_phase(
    path: Path,
    here: Phase,
    topology: str | None,
    placement: str | None,
    layout: str | None,
    options: Options,
    compare: bool,
) -> None:
    """Raises PWC0801 for options about choices that IR of this phase has already made."""
    for option, given in (("--topology", topology), ("--placement", placement), ("--layout", layout)):
        if given is not None and here.reached(Phase.PLACE):
            raise _too_late(path, here, option)
    if (options.schedule != PROGRAM or options.emit_schedule) and here.reached(Phase.SCHEDULE):
        raise _too_late(path, here, "--schedule")
    if splits_backward(options.schedule) and here.reached(Phase.SHARD):
        raise _too_late(path, here, f"--schedule {options.schedule}")
    if compare and here.reached(Phase.SHARD):
        raise _too_late(path, here, "--compare-schedules")


def start(
    source: str, topology: Topology | None, platform: str | None, schedule: str, microbatches: int = 0
) -> Compilation:
    """Reads a dump, or traces a source and cuts its losses into stages for this topology and schedule.

    `microbatches` replaces the number that the losses state; 0 keeps it.
    """
    given = read_spec(source)
    if given.is_dump:
        dump = read_dump(given.path, platform or process().platform)
        for note in dump.notes:
            click.echo(f"note: {note}", err=True)
        return Compilation(dump.program, dump.constants, Session(_machines(topology, dump.program.platform)))
    function = load_program(given)
    chosen = platform or process().platform
    machines = _machines(topology, chosen)
    with compiling(Target.of(machines, schedule, microbatches)):
        lowered = lower_program(function, given, chosen)
    begin = time.perf_counter()
    program = lowered.copied_program()
    compilation = Compilation(program, lowered.constants, Session(machines), pipelines=lowered.pipelines)
    for name, seconds in lowered.timing.items():
        compilation.timing.add(name, seconds)
    compilation.timing.add("trace", time.perf_counter() - begin)
    return compilation


def _machines(topology: Topology | None, platform: str) -> Topology | None:
    """Returns the given topology, or the host's devices, or None on CPU, which provides as many as a program needs."""
    return topology if topology is not None or platform_named(platform).made_at_will else host_topology()


def _emit_ir(ir_text: str, output: Path | None) -> None:
    if output is None:
        click.echo(ir_text)
    else:
        write_whole(output, ir_text)


def _too_late(path: Path, phase: Phase, option: str) -> PathwaysError:
    advice = "start from the source, or from a dump of an earlier phase"
    have = f"{option}, but the IR has already reached phase {phase}"
    return PathwaysError(BadSource(path=str(path), have_=have, rule="a dump of an earlier phase", advice=advice))
