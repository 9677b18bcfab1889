"""`pwc passes`"""

import inspect
from dataclasses import fields

import click

from pathways.api.summary import table
from pathways.compiler.pass_manager import PASSES
from pathways.compiler.placement import POLICIES

_EXAMPLE = """
\b
Example:
  pwc passes
"""


@click.command("passes", epilog=_EXAMPLE)
def passes_() -> None:
    """List the passes with the phases they require and ensure and their options, and the placements."""
    rows = [["pass", "requires", "ensures", "options", ""]]
    for name, cls in PASSES.items():
        options = ", ".join(f"{f.name}={f.default}" for f in fields(cls)) or "none"
        rows.append([name, *cls.phases(), options, _first_line(cls)])
    click.echo(table(rows))
    click.echo()
    click.echo(table([["placement", ""], *([n, _first_line(p)] for n, p in POLICIES.items())]))
    click.echo("as you say: --layout 'embed block*4 | block*4 head'")
    click.echo("your own: --placement FILE.py:NAME, or an entry point in the group pathways.passes;")
    click.echo("          --pass-pipeline ...,FILE.py:NAME,... for a whole pass")


def _first_line(documented: object) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n")[0]
