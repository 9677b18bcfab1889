"""Defines the options that `pwc compile` and `pwc opt` share for debugging compiler passes. They print the IR before or
after a pass, the time of each pass, and op counts.
"""

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from pathways.api.summary import table
from pathways.compiler.errors import OF_OPTIONS
from pathways.compiler.instruments import Instrument, Printer, Reproducer, Statistics
from pathways.compiler.pass_manager import PASSES, Timing
from pathways.dialect.diagnostics import PathwaysError

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--print-ir-before", multiple=True, type=click.Choice(list(PASSES)),
                 help="Print the IR before this pass."),
    click.option("--print-ir-after", multiple=True, type=click.Choice(list(PASSES)),
                 help="Print the IR after this pass."),
    click.option("--print-ir-after-all", is_flag=True, help="Print the IR after every pass."),
    click.option("--print-ir-after-change", is_flag=True, help="Print the IR after every pass that changed it."),
    click.option("--print-ir-tree-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                 help="Write the IR after every pass to DIR/NN.PASS.mlir."),
    click.option("--timing", is_flag=True, help="Print the seconds each pass took."),
    click.option("--pass-statistics", is_flag=True,
                 help="Print the count of each kind of op, before and after each pass."),
    click.option("--crash-reproducer", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                 help="Save there the IR before a failing pass, and a command that reproduces the failure."),
)  # fmt: skip


def _names(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


without_option = click.option("--without", default="", metavar="NAME[,NAME]", callback=_names,
                              help="Omit these passes; pwc passes lists all passes.")  # fmt: skip


@dataclass
class IrOptions:
    """The values of these options, and the instruments that implement them."""

    print_ir_before: tuple[str, ...]
    print_ir_after: tuple[str, ...]
    print_ir_after_all: bool
    print_ir_after_change: bool
    print_ir_tree_dir: Path | None
    timing: bool
    pass_statistics: bool
    crash_reproducer: Path | None
    statistics: Statistics = field(default_factory=Statistics)

    def instruments(self, *, always_save: bool) -> Sequence[Instrument]:
        """Creates the instruments. If `always_save`, failing IR is saved, by default in a temporary folder."""
        printer = Printer(
            self.print_ir_before,
            self.print_ir_after,
            self.print_ir_after_all,
            self.print_ir_after_change,
            self.print_ir_tree_dir,
            lambda text: click.echo(text, err=True),
        )
        used: list[Instrument] = [printer]
        if self.pass_statistics:
            used.append(self.statistics)
        if self.crash_reproducer is not None or always_save:
            used.append(Reproducer(self._folder))
        return used

    def _folder(self, error: Exception) -> Path | None:
        """Returns the given folder, else a temporary one. None if the failure was a refused option."""
        if self.crash_reproducer is not None:
            return self.crash_reproducer
        refused = isinstance(error, PathwaysError) and all(isinstance(d, OF_OPTIONS) for d in error.diagnostics)
        return None if refused else Path(tempfile.mkdtemp(prefix="pwc-"))

    def report(self, timing: Timing) -> None:
        """Prints the counts and times to stderr."""
        if self.timing:
            total = sum(timing.passes.values()) or 1.0
            rows = [[name, f"{s:.4f} s", f"{s / total:.1%}"] for name, s in timing.passes.items()]
            click.echo(table([["pass", "wall", "share"], *rows, ["total", f"{total:.4f} s", ""]]), err=True)
        if self.pass_statistics:
            rows = [[p, op, str(a), str(b), f"{b - a:+}" if a != b else ""] for p, op, a, b in self.statistics.rows]
            click.echo(table([["pass", "ops", "before", "after", ""], *rows]), err=True)


def ir_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which receives them as one argument, `ir_options`."""

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> Any:
        names = [f for f in IrOptions.__dataclass_fields__ if f != "statistics"]
        chosen = IrOptions(**{n: arguments.pop(n) for n in names})
        return command(ir_options=chosen, **arguments)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
