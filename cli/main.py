"""`pwc`: the group of commands, and how errors become exit codes."""

from typing import Any

import click

from pathways.cli.check import check
from pathways.cli.cluster import cluster_, stack_, status_
from pathways.cli.compile import compile_
from pathways.cli.diff import diff
from pathways.cli.doctor import doctor
from pathways.cli.error_format import error_format_option, show, text_format
from pathways.cli.errors import OutputLost
from pathways.cli.explain import explain
from pathways.cli.inspect import inspect_
from pathways.cli.opt import opt
from pathways.cli.output import Output, guarded_output
from pathways.cli.passes import passes_
from pathways.cli.run import run
from pathways.cli.why import why
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.versions import VERSION


class _Group(click.Group):
    def main(self, *args: Any, **extra: Any) -> Any:
        text_format()
        with guarded_output() as output:
            try:
                return super().main(*args, **extra)
            except SystemExit as end:
                raise SystemExit(_exit_code(end, output)) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PathwaysError as error:
            show(error)
            ctx.exit(error.diagnostic.exit.value)


def _exit_code(end: SystemExit, output: Output) -> Any:
    """Returns the exit code of the command; 1 where only its printing failed."""
    lost = output.lost()
    if lost is None:
        return end.code
    error = PathwaysError(OutputLost(problem=lost.strerror or str(lost)))
    show(error)
    return end.code or error.diagnostic.exit.value


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="pwc")
def main() -> None:
    """Compile JAX programs over virtual devices into plans for many islands, and run them."""


main.params.append(error_format_option())
for _command in (compile_, run, check, inspect_, why, diff, opt, passes_, explain, doctor, cluster_, status_, stack_):
    _command.params.append(error_format_option())
    main.add_command(_command)
