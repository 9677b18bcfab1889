"""`pwc why`"""

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pathways.cli.errors import NothingNamed
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan import Decision
from pathways.dialect.planfile import load_plan, stored_fields

EXAMPLE = """
\b
Examples:
  pwc why plan.bin s0                 (a slice: who chose its island, and what the runner-up would have cost)
  pwc why plan.bin first_stage        (a call, or a value that is moved or resharded)
  pwc why plan.bin model.py:41        (all that comes from this line)
  pwc why plan.bin                    (everything)
"""


@click.command("why", epilog=EXAMPLE)
@click.argument("path", metavar="PLAN", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the decisions as JSON.")
def why(path: Path, name: str | None, as_json: bool) -> None:
    """Say what decided a slice, a call, a transfer or a reshard, and what the runner-up would have cost."""
    plan = load_plan(path)
    found = [d for d in plan.decisions if name is None or _named(d, name)]
    if not found:
        names = list(dict.fromkeys(n for d in plan.decisions for n in (d.name, d.kind)))
        near = difflib.get_close_matches(name or "", names, n=3) or names[:8]
        raise PathwaysError(NothingNamed(name=name or "", known=", ".join(near) or "nothing: the plan is empty"))
    if as_json:
        click.echo(json.dumps({"version": 1, "placement": plan.placement, "decisions": [_row(d) for d in found]}))
        return
    if name is None:
        click.echo(plan.placement)
    click.echo(render(found))


def _named(decision: Decision, name: str) -> bool:
    where = decision.where
    at = "" if where is None else f"{where.file}:{where.line}"
    if at and (f"/{at}".endswith(f"/{name}") or f"/{name}".endswith(f"/{at}")):  # plans name files from their folder
        return True
    return name in (decision.name, decision.kind)


def _row(decision: Decision) -> dict[str, Any]:
    return asdict(decision, dict_factory=stored_fields)


def render(decisions: Iterable[Decision]) -> str:
    """Decisions for people, one after the other."""
    return "\n".join(_one(d) for d in decisions)


def _one(decision: Decision) -> str:
    times = f"  ({len(decision.steps)} times)" if len(decision.steps) > 1 else ""
    where = f"  {decision.where.at}" if decision.where is not None else ""
    lines = [f"{decision.kind} {decision.name}: {decision.chosen}{times}{where}"]
    if decision.bytes:
        lines.append(f"  moves:     {decision.bytes:,} bytes")
    lines.append(f"  because:   {decision.reason}")
    if decision.runner_up:
        lines.append(f"  runner-up: {decision.runner_up}")
    return "\n".join(lines)
