"""Implements `pwc why`, which explains decisions of the compiler that a plan file records. Examples are the devices of
a slice, a transfer or a reshard, and the cost of the best alternative.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pathways.cli.errors import NothingNamed
from pathways.cli.json_output import json_option, print_json
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.plan.nouns import Decision
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.plan.plan_file import stored_fields

_EXAMPLE = """
\b
Examples:
  pwc why plan.bin s0                 (a slice: the reason for its island, and the cost of the runner-up)
  pwc why plan.bin first_stage        (a call, or a value that is moved or resharded)
  pwc why plan.bin model.py:41        (all decisions about this line)
  pwc why plan.bin                    (everything)
"""


MAX_SHOWN_RECORDS = 8
"""Maximum number of names or lines that are suggested."""


@click.command("why", epilog=_EXAMPLE)
@click.argument("path", metavar="PLAN", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@json_option
def why(path: Path, name: str | None, as_json: bool) -> None:
    """Explain the decision about a slice, a call, a transfer or a reshard, and the cost of the runner-up."""
    plan = open_plan(path)
    found = [d for d in plan.decisions if name is None or _named(d, name)]
    if not found:
        near = _near(plan.decisions, name or "")
        known = f"{', '.join(near)}; pwc why {path} prints all decisions" if near else "the plan records no decisions"
        raise PathwaysError(NothingNamed(name=name or "(no name was given)", known=known))
    if as_json:
        print_json({"placement": plan.placement, "decisions": [_row(d) for d in found]})
        return
    if name is None:
        click.echo(plan.placement)
    click.echo(render(found))


def _named(decision: Decision, name: str) -> bool:
    target, where = _line(name), decision.where
    if target is not None and where is not None and where.line == target.line and _same_file(where.file, target.file):
        return True
    return name in (decision.name, decision.kind)


def _row(decision: Decision) -> dict[str, Any]:
    return asdict(decision, dict_factory=stored_fields)


def _line(name: str) -> Where | None:
    """Parses `model.py:41` as a file and line. Returns None for other text."""
    file, colon, number = name.rpartition(":")
    return Where(file, int(number)) if colon and file and number.isdecimal() else None


def _same_file(a: str, b: str) -> bool:
    """Returns whether two paths have the same end: plans and users name files from different folders."""
    short, long = sorted((Path(a).parts, Path(b).parts), key=len)
    return short == long[len(long) - len(short) :]


def _near(decisions: Sequence[Decision], name: str) -> list[str]:
    """Finds the names most similar to a given one, or the lines closest to a given one."""
    target = _line(name)
    lines = list(dict.fromkeys((d.where.file, d.where.line) for d in decisions if d.where is not None))
    if target is not None and lines:
        here = [(file, line) for file, line in lines if Path(file).name == Path(target.file).name] or lines
        nearest = sorted(here, key=lambda at: (abs(at[1] - target.line), at))[:MAX_SHOWN_RECORDS]
        return [f"{Path(file).name}:{line}" for file, line in sorted(nearest)]
    names = list(dict.fromkeys(n for d in decisions for n in (d.name, d.kind)))
    return difflib.get_close_matches(name, names, n=3) or names[:MAX_SHOWN_RECORDS]


def render(decisions: Iterable[Decision]) -> str:
    """Formats decisions as text, one after the other."""
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
