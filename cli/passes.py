"""Implements `pwc passes`, which lists the compiler passes with their options, and the placement policies."""

import inspect
from dataclasses import fields
from typing import Any

import click

from pathways.api.summary import table
from pathways.cli.json_output import json_option, print_json
from pathways.compiler.pass_manager import PASSES
from pathways.compiler.passes.base import Pass
from pathways.compiler.placement import POLICIES

_EXAMPLE = """
\b
Examples:
  pwc passes
  pwc passes --json | jq -r '.passes[].name'
"""


@click.command("passes", epilog=_EXAMPLE)
@json_option
def passes_(as_json: bool) -> None:
    """List the passes with the phases they require and ensure and their options, and the placements."""
    if as_json:
        print_json({"passes": [_row(*item) for item in PASSES.items()], "placements": _placements()})
        return
    rows = [["pass", "requires", "ensures", "options", ""]]
    for name, cls in PASSES.items():
        options = ", ".join(f"{f.name}={f.default}" for f in fields(cls)) or "none"
        rows.append([name, *cls.phases(), options, _first_line(cls)])
    click.echo(table(rows))
    click.echo()
    click.echo(table([["placement", ""], *([n, _first_line(p)] for n, p in POLICIES.items())]))
    click.echo("by hand:  --layout 'embed block*4 | block*4 head'")
    click.echo("your own: --placement FILE.py:NAME, or an entry point in the group pathways.passes;")
    click.echo("          --pass-pipeline ...,FILE.py:NAME,... for a whole pass")


def _row(name: str, cls: type[Pass]) -> dict[str, Any]:
    requires, ensures = cls.phases()
    options = {field.name: str(field.default) for field in fields(cls)}
    return {"name": name, "requires": requires, "ensures": ensures, "options": options, "text": _first_line(cls)}


def _placements() -> list[dict[str, str]]:
    return [{"name": name, "text": _first_line(policy)} for name, policy in POLICIES.items()]


def _first_line(documented: object) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n")[0]
