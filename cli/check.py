"""Implements `pwc check`, which checks a source, a dump of IR, or a plan without any devices. It checks shapes,
shardings, placement, memory and the order of execution. Users run it before they start a job.
"""

import click

from pathways.api.summary import size
from pathways.cli.compile import start
from pathways.cli.source_spec import METAVAR, read_spec
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Pass
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.check_modules import check_modules
from pathways.dialect.plan.match import check_fit
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import linearize
from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.platforms import PLATFORMS
from pathways.dialect.topology import parse_topology

_EXAMPLE = """
\b
Examples:
  pwc check model.py --topology paper-c
  pwc check plan.bin
  pwc check plan.bin --topology islands=1,devices=4     (does the plan fit there?)
"""


@click.command("check", epilog=_EXAMPLE)
@click.argument("source", metavar=f"{METAVAR} | DUMP.mlir | PLAN")
@click.option("--topology", help="Machines to check against: a spec, a TOML file or a preset.")
@click.option("--platform", type=click.Choice(list(PLATFORMS)), help="For sources; default: the platform of this host.")
@click.option(
    "--placement", default="spread", show_default=True, help=f"{', '.join(sorted(POLICIES))}, or FILE.py:NAME."
)
def check(source: str, topology: str | None, platform: str | None, placement: str) -> None:
    """Run every check that needs no devices: shapes, shardings, placement, capacity, memory, order.

    A source or a dump is compiled without writing anything; a plan is read as by `pwc run`. The command stops at the
    first kind of violation, and prints all violations of that kind; exit code 3 (refused) or 5 (capacity).
    """
    given = read_spec(source)
    if given.is_python or given.is_dump:
        machines = parse_topology(topology) if topology is not None else None
        compilation = start(source, machines, platform, PROGRAM)
        _ok(f"phase {compilation.program.phase}", "traced or read, and verified")
        compilation.advance(options=Options(placement=placement), instruments=[_Progress()])
        plan = compilation.plan()
    else:
        plan = load_plan(given.path)
        _ok("file", "complete, undamaged, of a supported format")
        validate(plan, str(given.path))
        if topology is not None:
            check_fit(plan.name, plan.topology, parse_topology(topology), [s.island for s in plan.streams])
            _ok("topology", "it has the islands that the plan needs")
    _check_plan(plan, str(given))


class _Progress(Instrument):
    def after(self, step: Pass, program: ProgramIR) -> None:
        _ok(f"phase {program.phase}", f"{step.name} completed, the rules of all phases so far hold")


def _check_plan(plan: Plan, path: str) -> None:
    validate(plan, path)
    _ok("plan", "slots, shapes, donations, channels and meshes are consistent")
    check_modules(plan, path)
    _ok("computations", f"{len(plan.computations)} modules have the types that the plan states")
    functions = [plan, *(plan.of_body(number) for number in range(len(plan.bodies)))]
    steps = sum(len(linearize(function)) for function in functions)
    _ok("order", f"{steps} instructions can run in one order: no island waits forever")
    for stream in plan.streams:
        memory = plan.topology.island(stream.island).memory
        stated = "not checked: the topology states no memory" if memory is None else f"of {size(memory)}"
        _ok("memory", f"{stream.island}: peak {size(stream.peak_bytes)} a device, {stated}")


def _ok(what: str, text: str) -> None:
    click.echo(f"ok  {what:16} {text}")
