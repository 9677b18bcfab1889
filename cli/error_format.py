"""How errors leave `pwc`: as text for people, or as one line of JSON for tools."""

import json
from typing import Any

import click

from pathways.dialect.diagnostics import PathwaysError

_KEY = "pathways.error_format"


def _remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().meta[_KEY] = value


def error_format_option() -> click.Option:
    """The option that the group and every command have."""
    return click.Option(
        ["--error-format"],
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_remember,
        is_eager=True,
        help="How errors are printed, on stderr; default: text.",
    )


def show(ctx: click.Context, error: PathwaysError) -> None:
    """Prints an error, and the notes that were added on its way."""
    notes: list[str] = list(getattr(error, "__notes__", ()))
    if ctx.find_root().meta.get(_KEY) == "json":
        row: dict[str, Any] = {"version": 1, "errors": [d.as_json() for d in error.diagnostics], "notes": notes}
        click.echo(json.dumps(row), err=True)
        return
    click.echo(str(error), err=True)
    for note in notes:
        click.echo(f"note: {note}", err=True)
