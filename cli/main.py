"""Implements the top level of `pwc`: it imports the module of a command only when that command runs. It also turns
exceptions into error messages and exit codes.
"""

from importlib import import_module
from typing import Any

import click

from pathways.cli.error_format import error_format_option, show, text_format
from pathways.cli.errors import OutputLost
from pathways.cli.output import Output, guarded_output
from pathways.cli.process_end import ends_with_the_command
from pathways.cli.quiet import quiet_option
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.versions import VERSION


class _Group(click.Group):
    def main(self, *args: Any, **extra: Any) -> Any:
        text_format()
        if not args and not extra:  # otherwise another process calls this
            ends_with_the_command()
        with guarded_output() as output:
            try:
                return super().main(*args, **extra)
            except SystemExit as end:
                raise SystemExit(_exit_code(end, output)) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a command and its imports. Other commands are not loaded, because loading all takes a second."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, name = COMMANDS[cmd_name].partition(":")
            command: click.Command = getattr(import_module(f"pathways.cli.{module}"), name)
            command.params += [error_format_option(), quiet_option()]
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PathwaysError as error:
            show(error)
            ctx.exit(error.diagnostic.exit.value)


def _exit_code(end: SystemExit, output: Output) -> Any:
    """Returns the exit code of the command, or 1 if only its output failed."""
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


COMMANDS = {
    "compile": "compile:compile_",
    "search": "search:search_",
    "simulate": "simulate:simulate_",
    "calibrate": "calibrate:calibrate_",
    "run": "run:run",
    "check": "check:check",
    "inspect": "inspect:inspect_",
    "viz": "viz:viz",
    "why": "why:why",
    "diff": "diff:diff",
    "opt": "opt:opt",
    "passes": "passes:passes_",
    "explain": "explain:explain",
    "doctor": "doctor:doctor",
    "cluster": "cluster:cluster_",
    "proxy": "proxy:proxy_",
    "status": "cluster:status_",
    "top": "cluster:top_",
    "stack": "cluster:stack_",
}
"""Each command as module and name. A new command is a row here and a file beside this one. Commands of clusters get
their options in cluster.py."""
main.params += [error_format_option(), quiet_option()]
