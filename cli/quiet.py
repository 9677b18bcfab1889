"""Defines the option `--quiet` of every command, which disables the progress display in a terminal."""

from functools import partial

import click

from pathways.api.progress_display import PROGRESS, QUIET, quiet


def _be_quiet(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.call_on_close(partial(quiet, PROGRESS.quiet))
        quiet()


def quiet_option() -> click.Option:
    """Creates the option `--quiet` of the group and of every command."""
    return click.Option(
        ["--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_be_quiet,
        is_eager=True,
        help=f"Show no progress, even in a terminal; the same as {QUIET}=1.",
    )
