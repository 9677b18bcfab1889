"""`pwc`: the group of commands, and how errors leave the process."""

import os
import sys
from typing import Any

import click

from pathways.cli.check import check
from pathways.cli.compile import compile_
from pathways.cli.diff import diff
from pathways.cli.doctor import doctor
from pathways.cli.error_format import error_format_option, show
from pathways.cli.explain import explain
from pathways.cli.inspect import inspect_
from pathways.cli.opt import opt
from pathways.cli.passes import passes_
from pathways.cli.run import run
from pathways.cli.why import why
from pathways.dialect.diagnostics import Exit, PathwaysError
from pathways.dialect.planfile import VERSION


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PathwaysError as error:
            show(ctx, error)
            ctx.exit(error.diagnostic.exit.value)
        except BrokenPipeError:
            # The reader has what it wanted; Python must not complain again when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(Exit.FAILED.value)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="pwc")
def main() -> None:
    """Compile JAX programs over virtual devices into plans for many islands, and run them."""


main.params.append(error_format_option())
for _command in (compile_, run, check, inspect_, why, diff, opt, passes_, explain, doctor):
    _command.params.append(error_format_option())
    main.add_command(_command)
