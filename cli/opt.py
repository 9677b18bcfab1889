"""Implements `pwc opt`, which runs chosen compiler passes on a dump of IR and prints the result. It is the counterpart
of `mlir-opt`, for people who debug or write passes.
"""

import errno
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click

from pathways.cli.errors import BadSource
from pathways.cli.expected import check_expected, split_input
from pathways.cli.ir_options import IrOptions, ir_options, without_option
from pathways.compiler.driver import parse_program
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import PASSES, Timing, leave_out, run_pass
from pathways.compiler.pass_text import read_passes
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.mlir import pretty, text
from pathways.dialect.topology import parse_topology

_EXAMPLE = f"""
\b
Examples:
  pwc opt dumps/01.trace.mlir
  pwc opt dumps/01.trace.mlir --pass-pipeline='propagate-shardings,place{{policy=spread}}'
  pwc opt - --pass-pipeline=order-calls < dumps/04.transfer.mlir
  pwc opt wrong.mlir --split-input-file --verify-diagnostics

\b
Passes: {", ".join(PASSES)}
"""


@click.command("opt", epilog=_EXAMPLE)
@click.argument("source", metavar="IN.mlir")
@click.option("--pass-pipeline", default="", help="Passes to run, separated by commas, options in braces.")
@without_option
@click.option("--topology", help="For the pass place: islands=2,devices=4, a TOML file, or a preset.")
@click.option("--no-debug-info", is_flag=True, help="Print without locations; such text loses names when parsed.")
@click.option("--split-input-file", is_flag=True, help="The input has several modules, separated by lines of // -----.")
@click.option(
    "--verify-diagnostics", is_flag=True, help="Print nothing; check errors against // expected-error {{...}}."
)
@ir_options
def opt(
    source: str,
    pass_pipeline: str,
    without: tuple[str, ...],
    topology: str | None,
    no_debug_info: bool,
    split_input_file: bool,
    verify_diagnostics: bool,
    ir_options: IrOptions,
) -> None:
    """Run passes on a dump and print the result; without passes, verify and print. `-` reads standard input."""
    read = _read(source)
    passes = leave_out(read_passes(pass_pipeline), without)
    work = _Work(passes, topology, not no_debug_info, ir_options.instruments(always_save=False), source)
    chunks = list(split_input(read)) if split_input_file else [read]
    if verify_diagnostics:
        check_expected(source, ((chunk, list(work.problems(chunk))) for chunk in chunks))
        return
    outputs: list[str] = []
    problems: list[Diagnostic] = []
    for chunk in chunks:
        try:
            outputs.append(work.run(chunk))
        except PathwaysError as error:
            if len(chunks) == 1:
                raise
            problems += error.diagnostics
    click.echo("// -----\n".join(f"{o}\n" for o in outputs), nl=False)
    ir_options.report(work.timing)
    if problems:
        raise PathwaysError(*problems)


@dataclass
class _Work:
    """Processes each input."""

    passes: Sequence[Pass]
    topology: str | None
    debug_info: bool
    instruments: Sequence[Instrument]
    source: str

    def __post_init__(self) -> None:
        self.timing = Timing()

    def run(self, chunk: str) -> str:
        program = parse_program(chunk, self.source)
        session = Session(parse_topology(self.topology) if self.topology else None)
        for step in self.passes:
            run_pass(program, step, session, self.timing, self.instruments)
        return text(program.read_module()) if self.debug_info else pretty(program.read_module())

    def problems(self, chunk: str) -> Iterator[Diagnostic]:
        try:
            self.run(chunk)
        except PathwaysError as error:
            yield from error.diagnostics


def _read(source: str) -> str:
    try:
        return (_standard_input() if source == "-" else Path(source).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        advice = "pwc compile model.py --dump-phases-to DIR writes dumps"
        have = error.strerror if isinstance(error, OSError) and error.strerror else "bytes that are not text"
        raise PathwaysError(BadSource(path=source, have_=have, rule="the text of a dump", advice=advice)) from None


def _standard_input() -> bytes:
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return stream.buffer.read()
