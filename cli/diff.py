"""Implements `pwc diff`, which compares two plan files. It prints a summary of what moved, was resharded or reordered,
and then the instructions that differ.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import click

from pathways.api.summary import dcn_bytes, in_bodies, size
from pathways.cli.inspect import dump_of
from pathways.cli.json_output import json_option, print_json
from pathways.cli.line_diff import moved_in, unified_diff
from pathways.cli.plan_lines import plan_lines
from pathways.dialect.mlir import parse_text, pretty
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.printable import lines_of

MAX_PRINTED_LINES = 199
"""The most lines that are printed without --all. One more line counts the others."""
MAX_NAMED_CALLS = 8
"""The most calls that the summary names for each slice that has other calls."""
_EXAMPLE = """
\b
Examples:
  pwc diff a.bin b.bin
  pwc diff a.bin b.bin --ir shard      (of plans compiled with --with-phases)
"""


@click.command("diff", epilog=_EXAMPLE)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--ir", type=click.Choice([p.value for p in Phase]), help="Compare the dumps of this phase.")
@click.option("--summary", is_flag=True, help="Print only the summary.")
@click.option("--all", "everything", is_flag=True, help=f"Print all lines, not only the first {MAX_PRINTED_LINES}.")
@json_option
@click.pass_context
def diff(ctx: click.Context, a: Path, b: Path, ir: str | None, summary: bool, everything: bool, as_json: bool) -> None:
    """Compare two plans: first a summary of the changes, then line by line. Exit code 1 if they differ."""
    old, new = open_plan(a), open_plan(b)
    changes = list(changed_lines(old, new))
    lines = [] if summary and changes else list(_lines(old, new, ir, str(a), str(b)))
    rest = [] if changes or lines else list(_unseen(old, new))
    if as_json:
        same = not (changes or lines or rest)
        print_json({"same": same, "summary": changes, "lines": [] if summary else lines, "unseen": rest})
        ctx.exit(0 if same else 1)
    headline = "nothing moved, nothing resharded, nothing reordered" if lines or rest else "the plans are the same"
    shown = [*(changes or [headline]), *([] if summary else lines), *rest]
    click.echo(lines_of("\n".join(shown if everything else shown[:MAX_PRINTED_LINES])))
    if len(shown) > MAX_PRINTED_LINES and not everything:
        click.echo(f"... and {len(shown) - MAX_PRINTED_LINES:,} more lines: --all")
    if changes or lines or rest:
        ctx.exit(1)


def changed_lines(old: Plan, new: Plan) -> Iterator[str]:
    """Yields the summary lines: moves, reshards and reorderings, and changes in bytes."""
    yield from _moved(old, new)
    yield from _resharded(old, new)
    yield from _reordered(old, new)
    yield from _bytes(old, new)


def _moved(old: Plan, new: Plan) -> Iterator[str]:
    before = {s.name: s for s in old.slices}
    for slice_ in new.slices:
        was = before.pop(slice_.name, None)
        if was is None:
            yield f"moved      {slice_.name}: new, on {slice_.island} {list(slice_.devices)}"
        elif (was.island, was.devices) != (slice_.island, slice_.devices):
            there = f"{slice_.island} {list(slice_.devices)}"
            yield f"moved      {slice_.name}: {was.island} {list(was.devices)} -> {there}   ({slice_.reason})"
    for name in before:
        yield f"moved      {name}: removed"


def _resharded(old: Plan, new: Plan) -> Iterator[str]:
    for what, a, b in (("input", old.inputs, new.inputs), ("result", old.results, new.results)):
        before = {p.name: p for p in a}
        for port in b:
            was = before.pop(port.name, None)
            if was is None:
                yield f"resharded  {what} {port.name}: new"
            elif _layout(old, was) != _layout(new, port):
                yield f"resharded  {what} {port.name}: {_layout(old, was)} -> {_layout(new, port)}"
        for name in before:
            yield f"resharded  {what} {name}: removed"
    a_moves, b_moves = (_movement(p) for p in (old, new))
    for kind, name, path in sorted((a_moves - b_moves).keys()):
        yield f"resharded  {kind} of {name} removed: {path}"
    for kind, name, path in sorted((b_moves - a_moves).keys()):
        yield f"resharded  {kind} of {name} new: {path}"


def _movement(plan: Plan) -> Counter[tuple[str, str, str]]:
    """Counts every transfer and reshard, on any slices."""
    found: Counter[tuple[str, str, str]] = Counter()
    for decision in plan.decisions:
        if decision.kind in ("transfer", "reshard"):
            found[decision.kind, decision.name, decision.chosen.partition(" by ")[0]] += len(decision.steps)
    return found


def _layout(plan: Plan, port: Port) -> str:
    if port.slot < 0:
        return "unused"
    layout = plan.stream(port.island).kind_of[port.slot].layout
    mesh = plan.meshes[layout.mesh]
    return f"{mesh.slice}{plan.sharding(layout)} on {mesh.spec}"


def _reordered(old: Plan, new: Plan) -> Iterator[str]:
    for slice_ in (s.name for s in new.slices):
        a, b = _order(old, slice_), _order(new, slice_)
        if a == b:
            continue
        if Counter(a) != Counter(b):
            more, fewer = Counter(b) - Counter(a), Counter(a) - Counter(b)
            parts = [f"+{n} {name}" for name, n in sorted(more.items())]
            parts += [f"-{n} {name}" for name, n in sorted(fewer.items())]
            more_parts = f", and {len(parts) - MAX_NAMED_CALLS} more" if len(parts) > MAX_NAMED_CALLS else ""
            yield f"calls      {slice_}: {', '.join(parts[:MAX_NAMED_CALLS])}{more_parts}"
        else:
            first = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
            many = f"at most {moved_in(a, b)} of {len(a)} calls moved"
            yield f"reordered  {slice_}: {many}; call {first} was {a[first]}, is {b[first]}"


def _order(plan: Plan, slice_: str) -> list[str]:
    """Returns the calls of a slice in order, each with the actions that it does."""
    meshes = {i for i, m in enumerate(plan.meshes) if m.slice == slice_}
    found: list[str] = []
    for streams in plan.all_streams:
        runs = [i for s in streams for i in s.instructions if isinstance(i, Run) and i.mesh in meshes]
        found += [r.shown for r in sorted(runs, key=lambda r: r.step)]
    return found


def _bytes(old: Plan, new: Plan) -> Iterator[str]:
    was, now = (f"{n} transfers of {size(b)}{in_bodies(p)}" for p in (old, new) for n, b in [dcn_bytes(p)])
    if was != now:
        yield f"bytes      between islands: {was} -> {now} a run"
    a_peak, b_peak = ({s.island: s.peak_bytes for s in p.streams} for p in (old, new))
    for island in sorted(a_peak.keys() | b_peak.keys()):
        x, y = a_peak.get(island, 0), b_peak.get(island, 0)
        if x != y:
            yield f"bytes      peak of {island}: {size(x)} -> {size(y)} a device"


def _unseen(old: Plan, new: Plan) -> Iterator[str]:
    """Finds differences that streams do not show: in the code of computations, constants, and other fields of a plan.

    Ignores dumps and executables: plans that differ only in these run identically.
    """
    if [c.name for c in old.computations] == [c.name for c in new.computations]:
        for was, is_ in zip(old.computations, new.computations, strict=True):
            if was != is_:
                yield f"computes   {is_.name}: other operations, or other source lines"
        old = replace(old, computations=new.computations)
    for field in fields(Plan):
        differs = getattr(old, field.name) != getattr(new, field.name)
        if field.compare and field.name != "phases" and differs:
            yield f"differs    {field.name}"


def _without_locations(dump: bytes) -> str:
    return pretty(parse_text(dump.decode(errors="replace"), "a dump"))


def _lines(old: Plan, new: Plan, ir: str | None, a: str, b: str) -> Iterator[str]:
    """Yields the differences of the plans, or of the dumps of one phase."""
    if ir is None:
        x, y = (list(plan_lines(plan, name)) for plan, name in ((old, a), (new, b)))
    else:
        x, y = (_without_locations(dump_of(plan, Phase(ir))).splitlines() for plan in (old, new))
    yield from unified_diff(x, y, a, b)
