"""`pwc opt`"""

import sys
from pathlib import Path

import click

from pathways.cli.compile import Printing
from pathways.cli.errors import BadSource
from pathways.compiler.driver import parse_program
from pathways.compiler.pass_pipeline import parse_pipeline
from pathways.compiler.passes.base import Session
from pathways.compiler.pipeline import PASSES, Timing, run_pass
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import pretty, text
from pathways.dialect.topology import parse_topology

EXAMPLE = f"""
\b
Examples:
  pwc opt dumps/01.trace.mlir
  pwc opt dumps/01.trace.mlir --pass-pipeline='propagate-shardings,place{{policy=spread}}'
  pwc opt - --pass-pipeline=order-program < dumps/04.transfer.mlir

\b
Passes: {", ".join(PASSES)}
"""


@click.command("opt", epilog=EXAMPLE)
@click.argument("source", metavar="IN.mlir")
@click.option("--pass-pipeline", default="", help="Passes to run, separated by commas, options in braces.")
@click.option("--topology", help="For the pass place: islands=2,devices=4, or a TOML file.")
@click.option("--no-debug-info", is_flag=True, help="Print without locations; such text loses names when parsed.")
@click.option("--print-ir-after-all", is_flag=True, help="Print the IR after every pass.")
def opt(source: str, pass_pipeline: str, topology: str | None, no_debug_info: bool, print_ir_after_all: bool) -> None:
    """Run passes on a dump and print the result; without passes, verify and print. `-` reads standard input."""
    passes = parse_pipeline(pass_pipeline)
    read = sys.stdin.read() if source == "-" else _read(source)
    program = parse_program(read, source)
    session = Session(parse_topology(topology) if topology else None)
    printing, timing = Printing((), print_ir_after_all), Timing()
    for step in passes:
        run_pass(program, step, session, timing)
        printing(step, program)
    click.echo(pretty(program.module) if no_debug_info else text(program.module))


def _read(source: str) -> str:
    try:
        return Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        advice = "pwc compile model.py --dump-phases-to DIR writes dumps"
        have = error.strerror if isinstance(error, OSError) and error.strerror else "bytes that are not text"
        raise PathwaysError(BadSource(path=source, have_=have, rule="the text of a dump", advice=advice)) from None
