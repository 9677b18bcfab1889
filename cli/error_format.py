"""Implements the option `--error-format` and prints the errors of all commands: as text for people, or as one line of
JSON for tools. `main.py` calls it when a command fails.
"""

import json
from contextvars import ContextVar
from typing import Any

import click

from pathways.cli.json_output import JSON_VERSION
from pathways.dialect.diagnostics import PathwaysError

_FORMAT = ContextVar("_FORMAT", default="text")


def text_format() -> None:
    """Restores the default format before an option is read."""
    _FORMAT.set("text")


def _remember(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        _FORMAT.set(value)


def error_format_option() -> click.Option:
    """Creates the option `--error-format` of the group and of every command."""
    return click.Option(
        ["--error-format"],
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_remember,
        is_eager=True,
        help="How errors are printed, on stderr; default: text.",
    )


def show(error: PathwaysError) -> None:
    """Prints an error and the notes that were added to it."""
    notes: list[str] = list(getattr(error, "__notes__", ()))
    if _FORMAT.get() == "json":
        row: dict[str, Any] = {
            "version": JSON_VERSION,
            "errors": [d.as_json() for d in error.diagnostics],
            "notes": notes,
        }
        click.echo(json.dumps(row), err=True)
        return
    click.echo(str(error), err=True)
    for note in notes:
        click.echo(f"note: {note}", err=True)
