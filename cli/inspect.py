"""Implements `pwc inspect`, which prints a plan file. It prints an overview of one screen, all instructions and
buffers, a dump of the IR, or JSON.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pathways.api.summary import channels, dcn_bytes, in_bodies, schedule_text, size, table
from pathways.cli.errors import NoDump
from pathways.cli.json_output import json_option, print_json
from pathways.cli.overview import overview
from pathways.dialect.call_labels import actions_of
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.leaves import leaves_of
from pathways.dialect.plan.limits import check_memory_shown
from pathways.dialect.plan.memory import by_kind, peak, timeline
from pathways.dialect.plan.nouns import Buffer, Plan, Port, Stream
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.plan.plan_file import stored_fields
from pathways.dialect.printable import lines_of

_EXAMPLE = """
\b
Examples:
  pwc inspect plan.bin                 (one screen)
  pwc inspect plan.bin --all           (every argument, buffer and instruction)
  pwc inspect plan.bin --ir place      (of a plan compiled with --with-phases)
  pwc inspect plan.bin --schedule
  pwc inspect plan.bin --memory
  pwc inspect plan.bin --json | jq .streams
"""


@click.command("inspect", epilog=_EXAMPLE)
@click.argument("path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--ir", type=click.Choice([p.value for p in Phase]), help="Print the dump of a phase instead.")
@click.option("--schedule", is_flag=True, help="Print the pipeline actions of each island, in order.")
@click.option(
    "--memory", is_flag=True, help="Print bytes by owner after each step, on the fullest device of each island."
)
@click.option("--all", "everything", is_flag=True, help="Print every argument, result, buffer and instruction.")
@json_option
def inspect_(path: Path, ir: str | None, schedule: bool, memory: bool, everything: bool, as_json: bool) -> None:
    """Show a plan on one screen: signature, islands, slices, transfers, the work of each island; or all of it."""
    plan = open_plan(path)
    if ir is not None:
        _print_ir(plan, Phase(ir))
    elif schedule or memory:
        if schedule:
            click.echo(actions(plan))
        if memory:
            check_memory_shown(plan, str(path))
            click.echo("\n".join(usage(plan, s) for s in plan.streams))
    elif as_json:
        print_json(json_of(plan))
    else:
        click.echo(describe_plan(plan) if everything else overview(plan, _port))


def _print_ir(plan: Plan, phase: Phase) -> None:
    click.echo(lines_of(dump_of(plan, phase).decode(errors="replace")))


def dump_of(plan: Plan, phase: Phase) -> bytes:
    """Returns the dump of a phase in a plan. Raises PWC0805 if the plan does not hold it."""
    dump = plan.phases.get(phase.dump_name)
    if dump is None:
        have = f"dumps: {', '.join(sorted(plan.phases)) or 'none'}"
        raise PathwaysError(NoDump(phase=phase.value, have_=have))
    return dump


def describe_plan(plan: Plan) -> str:
    """Formats the whole plan as text."""
    moves, crossing = dcn_bytes(plan)
    parts = [
        f"program {plan.name} for {plan.platform}",
        "inputs",
        table(_ports(plan, plan.inputs) or [["none"]], "  "),
        "results",
        table(_ports(plan, plan.results) or [["none"]], "  "),
        f"islands {plan.topology}",
        f"schedule {plan.schedule.name}: {schedule_text(plan.schedule)}",
        table([[s.name, f"-> {s.island} {list(s.devices)}", s.reason] for s in plan.slices] or [["no slices"]], "  "),
        f"transfers between islands: {moves}, {size(crossing)} a run{in_bodies(plan)}",
        table(
            [
                [a.name, str(a.type), f"{_at(plan, a)} -> {_at(plan, b)}"]
                for a, b in ((s.buffers[i], t.buffers[k]) for (s, i), (t, k) in channels(plan))
            ]
            or [["none"]],
            "  ",
        ),
    ]
    for stream in plan.streams:
        parts += _stream(plan, stream)
    for number, body in enumerate(plan.bodies):
        inner = plan.of_body(number)
        parts += [f"body {body.name}", "takes", table([_port(inner, p) for p in body.inputs] or [["nothing"]], "  ")]
        parts += ["makes", table([_port(inner, p) for p in body.results] or [["nothing"]], "  ")]
        for stream in body.streams:
            parts += _stream(inner, stream)
    return "\n".join(parts)


def actions(plan: Plan) -> str:
    """Formats a row for each island: the actions of its calls, each once. Actions merged into one call are joined by +.

    Calls outside the pipeline that run before or after one of its calls have the same action, so they add nothing.
    """
    rows: list[list[str]] = []
    for stream in plan.streams:
        seen: set[str] = set()
        cells: list[str] = []
        for run in (i for i in stream.instructions if isinstance(i, Run)):
            fresh = [a for a in actions_of(run.action, run.parts) if a not in seen]
            seen.update(fresh)
            cells += ["+".join(fresh)] if fresh else []
        if cells:
            rows.append([stream.island, " ".join(cells)])
    return table([[plan.schedule.name, schedule_text(plan.schedule)], *rows])


def usage(plan: Plan, stream: Stream) -> str:
    """Describes the memory of the fullest device of an island, step by step."""
    found = peak(plan, stream.island)
    if found.device < 0:
        return f"{stream.island}: nothing"
    at = "at the start" if found.step < 0 else f"at step {found.step}"
    head = f"{stream.island} device {found.device}: peak {size(found.bytes)} {at}, temporaries {plan.temporaries}"
    rows: list[list[str]] = []
    for step, owners in timeline(plan, stream.island, found.device):
        total = sum(owners.values())
        shown = ", ".join(f"{owner} {size(bytes_)}" for owner, bytes_ in by_kind(owners.items()))
        rows.append(["start" if step < 0 else str(step), size(total), shown])
    return f"{head}\n{table(rows, '  ')}"


def _at(plan: Plan, buffer: Buffer) -> str:
    mesh = plan.meshes[buffer.layout.mesh]
    return f"{mesh.island} {plan.sharding(buffer.layout)}"


def _ports(plan: Plan, ports: Sequence[Port]) -> list[list[str]]:
    """Formats a row for each array. An array in pieces is followed by a row for each piece."""
    rows: list[list[str]] = []
    for leaf in leaves_of(ports):
        if leaf.is_cut:
            shown = f"{leaf.port.dtype}{list(leaf.port.type.shape)}"
            rows.append(
                [leaf.port.name, shown, f"in {len(leaf.pieces)} pieces", "donated" if leaf.port.donated else ""]
            )
        rows += [_port(plan, p) for p in leaf.pieces]
    return rows


def _port(plan: Plan, port: Port) -> list[str]:
    if port.slot < 0:
        return [port.name, f"{port.dtype}{list(port.type.shape)}", "unused", ""]
    buffer = plan.stream(port.island).buffers[port.slot]
    where = f"{port.island} {plan.sharding(buffer.layout)} on {plan.meshes[buffer.layout.mesh].spec}"
    return [port.name, f"{port.dtype}{list(port.type.shape)}", where, "donated" if port.donated else ""]


def _stream(plan: Plan, stream: Stream) -> list[str]:
    buffers = [
        [f"%{i}", b.name, b.role, str(b.type), str(plan.sharding(b.layout)), size(b.bytes), _life(b.birth, b.death)]
        for i, b in enumerate(stream.buffers)
    ]
    counts = f"{len(stream.instructions)} instructions, {len(buffers)} buffers"
    return [
        f"{stream.island}: {counts}, peak {size(stream.peak_bytes)} a device",
        table(buffers or [["no buffers"]], "  "),
        table([_instruction(plan, i) for i in stream.instructions] or [["no instructions", "", ""]], "  "),
    ]


def _life(birth: int, death: int) -> str:
    return f"{'start' if birth < 0 else birth} .. {'end' if death < 0 else death}"


def _instruction(plan: Plan, instruction: Instruction) -> list[str]:
    at = f"{instruction.step:4}"
    match instruction:
        case Run():
            given = " ".join(f"%{s}{'!' if i in instruction.donated else ''}" for i, s in enumerate(instruction.inputs))
            made = " ".join(f"%{s}" for s in instruction.outputs)
            where = source_line(instruction.where)
            return [at, f"run {instruction.shown} {given} -> {made}", where]
        case Send():
            return [at, f"send %{instruction.slot} to {instruction.to} (channel {instruction.channel})", ""]
        case Recv():
            return [at, f"recv %{instruction.slot} from {instruction.source} (channel {instruction.channel})", ""]
        case Copy():
            return [at, f"copy %{instruction.source} -> %{instruction.target}", ""]
        case Branch():
            return [at, _branch(plan, instruction), source_line(instruction.where)]
        case Free():
            return [at, f"free {' '.join(f'%{s}' for s in instruction.slots)}", ""]


def source_line(where: Where | None) -> str:
    """Returns `model.py:7`; empty without a line."""
    return "" if where is None else where.at


def _branch(plan: Plan, branch: Branch) -> str:
    """Describes a branch in a stream: its operands on this island by number, `0=%3`."""
    bodies = [plan.bodies[b].name for b in branch.bodies]
    what = f"one of {', '.join(bodies)}" if branch.kind == "cond" else f"{bodies[1]} while {bodies[0]}"
    ends = [f"{n}=%{s}" for n, s in zip(branch.taken, branch.inputs, strict=True)]
    given = " ".join(f"{end}{'!' if i in branch.donated else ''}" for i, end in enumerate(ends))
    made = " ".join(f"{n}=%{s}" for n, s in zip(branch.made, branch.outputs, strict=True))
    return f"await, then run {what}: {given or 'nothing here'} -> {made or 'nothing here'}"


def json_of(plan: Plan) -> dict[str, Any]:
    row = asdict(plan, dict_factory=stored_fields)
    row["constants"] = {name: len(raw) for name, raw in plan.constants.items()}
    row["phases"] = sorted(plan.phases)
    row["executables"] = {name: len(raw) for name, raw in plan.executables.items()}
    for computation, original in zip(row["computations"], plan.computations, strict=True):
        computation["module"], computation["local"] = len(original.module), len(original.local)
    rows = [row["streams"], *(body["streams"] for body in row["bodies"])]
    for streams, originals in zip(rows, plan.all_streams, strict=True):
        for stream, original in zip(streams, originals, strict=True):
            stream["instructions"] = [
                {"op": type(i).__name__.lower(), **asdict(i, dict_factory=stored_fields)} for i in original.instructions
            ]
    return row
