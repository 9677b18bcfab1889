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
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(f"pathways.cli.{module}"), name)
            command.params += [error_format_option(), quiet_option()]
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the lines of all commands without loading one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

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
    "compile": ("compile:compile_", "Compile a program, or a dump of IR, to a plan."),
    "search": ("search:search_", "Find how to split a loss over machines."),
    "simulate": ("simulate:simulate_", "Predict the time of one step on the machines of a topology."),
    "calibrate": ("calibrate:calibrate_", "Measure this machine, or a cluster on it, for predictions."),
    "run": ("run:run", "Run a plan, or compile and run a source."),
    "check": ("check:check", "Check shapes, shardings, placement and memory without devices."),
    "inspect": ("inspect:inspect_", "Show a plan on one screen."),
    "viz": ("viz:viz", "Draw a plan, a source or a trace."),
    "why": ("why:why", "Explain the decision about a slice, a call, a transfer or a line."),
    "diff": ("diff:diff", "Compare two plans."),
    "opt": ("opt:opt", "Run passes on a dump and print the result."),
    "passes": ("passes:passes_", "List the passes with the phases that they require and ensure."),
    "explain": ("explain:explain", "Explain an error code, or the stability of a public name."),
    "doctor": ("doctor:doctor", "Check Python, JAX and the devices."),
    "cluster": ("cluster:cluster_", "Start, inspect and stop a cluster that several processes share."),
    "proxy": ("proxy:proxy_", "Serve devices to unmodified JAX programs."),
    "status": ("cluster:status_", "Show islands, devices, and the programs that run and wait."),
    "top": ("cluster:top_", "Show a running cluster, live."),
    "stack": ("cluster:stack_", "Show the current calls of all threads of each host."),
}
"""Each command as module and name, and its line in `pwc --help`, which loads none of them. A new command is a row here
and a file beside this one. Commands of clusters get their options in cluster.py."""
main.params += [error_format_option(), quiet_option()]
