"""`pwc inspect`"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pathways.cli.errors import NoDump
from pathways.cli.summary import channels, dcn_bytes, size, table
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.phases import Phase
from pathways.dialect.plan import Buffer, Copy, Free, Instruction, Plan, Port, Recv, Run, Send, Stream
from pathways.dialect.planfile import load_plan
from pathways.runtime.check_modules import check_modules
from pathways.runtime.validate import validate

EXAMPLE = """
\b
Examples:
  pwc inspect plan.bin
  pwc inspect plan.bin --ir place      (of a plan compiled with --with-phases)
  pwc inspect plan.bin --json | jq .streams
"""


@click.command("inspect", epilog=EXAMPLE)
@click.argument("path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--ir", type=click.Choice([p.value for p in Phase]), help="Print the dump of a phase instead.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect_(path: Path, ir: str | None, as_json: bool) -> None:
    """Show a plan: signature, islands, streams, buffers with sizes and lifetimes, transfers."""
    plan = load_plan(path)
    validate(plan, str(path))
    check_modules(plan, str(path))
    if ir is not None:
        _print_ir(plan, Phase(ir))
    elif as_json:
        click.echo(json.dumps({"version": 1} | _as_json(plan)))
    else:
        click.echo(describe(plan))


def _print_ir(plan: Plan, phase: Phase) -> None:
    click.echo(dump_of(plan, phase).decode())


def dump_of(plan: Plan, phase: Phase) -> bytes:
    """The dump of a phase that a plan holds. Raises PWC0805 where it holds none."""
    dump = plan.phases.get(phase.dump_name)
    if dump is None:
        have = f"dumps: {', '.join(sorted(plan.phases)) or 'none'}"
        raise PathwaysError(NoDump(phase=phase.value, have_=have))
    return dump


def describe(plan: Plan) -> str:
    """The plan for people."""
    moves, crossing = dcn_bytes(plan)
    parts = [
        f"program {plan.name} for {plan.platform}",
        "inputs",
        table([_port(plan, p) for p in plan.inputs] or [["none"]], "  "),
        "results",
        table([_port(plan, p) for p in plan.results] or [["none"]], "  "),
        f"islands {plan.topology}",
        table([[s.name, f"-> {s.island} {list(s.devices)}", s.reason] for s in plan.slices] or [["no slices"]], "  "),
        f"transfers between islands: {moves}, {size(crossing)} a run",
        table(
            [[a.name, str(a.type), f"{_at(plan, a)} -> {_at(plan, b)}"] for a, b in channels(plan)] or [["none"]], "  "
        ),
    ]
    for stream in plan.streams:
        parts += _stream(plan, stream)
    return "\n".join(parts)


def _at(plan: Plan, buffer: Buffer) -> str:
    mesh = plan.meshes[buffer.layout.mesh]
    return f"{mesh.island} {plan.sharding(buffer.layout)}"


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
            where = "" if instruction.where is None else f"{instruction.where.file}:{instruction.where.line}"
            return [at, f"run {instruction.name} {given} -> {made}", where]
        case Send():
            return [at, f"send %{instruction.slot} to {instruction.to} (channel {instruction.channel})", ""]
        case Recv():
            return [at, f"recv %{instruction.slot} from {instruction.source} (channel {instruction.channel})", ""]
        case Copy():
            return [at, f"copy %{instruction.source} -> %{instruction.target}", ""]
        case Free():
            return [at, f"free {' '.join(f'%{s}' for s in instruction.slots)}", ""]


def _as_json(plan: Plan) -> dict[str, Any]:
    row = asdict(plan)
    row["constants"] = {name: len(raw) for name, raw in plan.constants.items()}
    row["phases"] = sorted(plan.phases)
    for computation, original in zip(row["computations"], plan.computations, strict=True):
        computation["module"] = len(original.module)
    for stream, original in zip(row["streams"], plan.streams, strict=True):
        stream["instructions"] = [{"op": type(i).__name__.lower(), **asdict(i)} for i in original.instructions]
    return row
