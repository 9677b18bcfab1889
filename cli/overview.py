"""Formats the overview that `pwc inspect` prints by default. It fits on one screen for a plan of any size, because
similar rows become one.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pathways.api.summary import dcn_bytes, in_bodies, runs_of, schedule_text, size, table
from pathways.cli.groups import ROWS, counted, grouped, listed
from pathways.dialect.plan.instructions import INSTRUCTIONS, Branch, Run
from pathways.dialect.plan.leaves import leaf_ports, leaves_of
from pathways.dialect.plan.nouns import Plan, Port, Stream


def overview(plan: Plan, row: Callable[[Plan, Port], list[str]]) -> str:
    """Formats the plan, with groups in place of long lists. `row` formats one argument or result."""
    moves, crossing = dcn_bytes(plan)
    slices = [[s.name, f"-> {s.island} {_range(s.devices)}", s.reason] for s in plan.slices]
    return "\n".join(
        [
            f"program {plan.name} for {plan.platform}",
            f"inputs   {counted(leaf_ports(plan.inputs))}",
            table(_ports(plan, plan.inputs, row), "  "),
            f"results  {counted(leaf_ports(plan.results))}",
            table(_ports(plan, plan.results, row), "  "),
            f"islands  {listed(str(plan.topology).split(', '))}",
            f"schedule {plan.schedule.name}: {schedule_text(plan.schedule)}",
            table(_first(slices or [["no slices", "", ""]]), "  "),
            f"transfers between islands: {moves}, {size(crossing)} a run{in_bodies(plan)}",
            table(_first([_stream(plan, s) for s in plan.streams] or [["no streams", "", "", ""]]), "  "),
            *_bodies(plan),
            "more: --all, --schedule, --memory, --ir PHASE, --json",
        ]
    )


def _ports(plan: Plan, ports: Sequence[Port], row: Callable[[Plan, Port], list[str]]) -> list[list[str]]:
    leaves = leaves_of(ports)
    groups, left = grouped([leaf.port for leaf in leaves])
    rows: list[list[str]] = []
    for group in groups:
        held = replace(group, ports=tuple(p for m in group.members for p in leaves[m].pieces))
        if held.single is not None:
            rows.append(row(plan, held.single))
        elif group.single is not None:
            type_ = f"{group.single.dtype}{list(group.single.type.shape)}"
            rows.append([group.name, f"{type_} in {len(held.ports)} pieces", held.islands, group.donated])
        else:
            rows.append([group.name, counted(group.ports), held.islands, group.donated])
    if left:
        rows.append([f"... and {len(left)} more", counted(left), "", ""])
    return rows or [["none", "", "", ""]]


def _stream(plan: Plan, stream: Stream) -> list[str]:
    """Counts the instructions of an island."""
    runs = runs_of(plan, stream.island)
    names = Counter(r.name for r in runs)
    computations = len({r.computation for r in runs})
    shown = listed([f"{n} x {name}" if n > 1 else name for name, n in names.most_common()], 3)
    kinds = Counter(type(i) for i in stream.instructions)
    others = [
        f"{kinds[kind]} {kind.COUNTED[kinds[kind] > 1]}" for kind in INSTRUCTIONS if kind is not Run and kinds[kind]
    ]
    return [
        stream.island,
        f"peak {size(stream.peak_bytes)} a device",
        f"{len(runs)} runs of {computations}: {shown}" if runs else "no runs",
        ", ".join([*others, f"{len(stream.buffers)} buffers"]),
    ]


def _bodies(plan: Plan) -> list[str]:
    """Formats the bodies that branches run, one row for each."""
    used: Counter[int] = Counter()
    for streams in plan.all_streams:
        steps = {(i.step, i.bodies) for s in streams for i in s.instructions if isinstance(i, Branch)}
        used.update(b for _, bodies in steps for b in bodies)
    rows: list[list[str]] = []
    for number, body in enumerate(plan.bodies):
        runs = sum(isinstance(i, Run) for s in body.streams for i in s.instructions)
        islands = ", ".join(s.island for s in body.streams)
        takes = f"takes {counted(body.inputs)}; makes {counted(body.results)}"
        rows.append([f"body {body.name}", f"of {used[number]} branches", takes, f"{runs} runs on {islands}"])
    return [table(_first(rows))] if rows else []


def _first(rows: list[list[str]]) -> list[list[str]]:
    if len(rows) <= ROWS:
        return rows
    blank = [""] * (len(rows[0]) - 1)
    return [*rows[:ROWS], [f"... and {len(rows) - ROWS} more", *blank]]


def _range(devices: tuple[int, ...]) -> str:
    if len(devices) > ROWS and devices == tuple(range(devices[0], devices[0] + len(devices))):
        return f"[{devices[0]}..{devices[-1]}]"
    return str(list(devices))
