"""Computes the time of a training step and its network traffic from a compiled program, by simulation. `pw.search` does
this for its best splits, in place of the prediction. Pure functions.
"""

from collections.abc import Sequence

from pathways.compiler.schedule.estimate import seconds_of
from pathways.compiler.schedule.timeline import Bubble, Precedence, bubble, play
from pathways.dialect.ir.program import ProgramIR


def play_program(program: ProgramIR) -> Bubble:
    """Simulates a program of phase `schedule`: each slice does its calls in their order, at the flop/s of its island.

    A transfer inside an island takes all links of the devices that it reaches, as in docs/placement.md.
    """
    flow = program.flow
    numbers = {symbol: i for i, symbol in enumerate(program.slices)}
    seconds = seconds_of(program)
    slices = [numbers[program.slice_of(n.mesh)] if n.is_call else -1 for n in flow.nodes]
    for node in flow.nodes:
        if node.is_transfer and node.op.route != "dcn":
            seconds[node.number] /= program.mesh(node.mesh).size
    waits = [sorted({m for m in (flow.makers[v] for v in n.operands) if m >= 0}) for n in flow.nodes]
    predecessors: list[Sequence[int]] = [()] * len(slices)
    last: dict[int, int] = {}
    for node, at in enumerate(slices):
        if at >= 0:
            predecessors[node] = (last[at],) if at in last else ()
            last[at] = node
    graph = Precedence(waits, slices, seconds)
    return bubble(graph, play(graph, predecessors))


def network_bytes(program: ProgramIR) -> int:
    """Returns the bytes that cross between islands in one run of a program of phase `transfer` or later."""
    return sum(n.op.bytes or 0 for n in program.flow.nodes if n.is_transfer and n.op.route == "dcn")
