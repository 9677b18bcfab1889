"""Finds when each value of a program is made and when it is used for the last time. It also finds if that last use may
overwrite (donate) the buffer. Buffer planning calls it. Pure functions.

`streams.py` and the pass `plan_islands` use it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pathways.compiler.computations.updates import pair_updates, updates_of
from pathways.dialect.ir.flow import Column, Flow, Node
from pathways.dialect.ir.program import ProgramIR

BEFORE, KEPT = -1, -1
"""The birth of a value that exists before the first step; the death of a value that is never freed."""


@dataclass(frozen=True)
class Lifetimes:
    """For each value, by number: the step that makes it, the step after which it is freed or overwritten, its rights.

    Results and constants have the end KEPT. `owned`: the value is neither the caller's nor a constant, so the program
    may overwrite it after its last use, unless it is kept.
    """

    births: Column
    ends: Column
    owned: Column


def lifetimes(program: ProgramIR) -> Lifetimes:
    """Computes the lifetimes of all values, in the order of the program's steps."""
    flow, arguments = program.flow, program.arguments
    steps = np.array([node.op.step for node in flow.nodes], np.intp)
    births = np.full(len(flow.types), BEFORE)
    births[len(arguments) :] = np.repeat(steps, [len(node.results) for node in flow.nodes])
    ends = births.copy()
    np.maximum.at(ends, flow.operands, steps[flow.readers])
    ends[[*flow.returned, *(i for i, a in enumerate(arguments) if a.is_constant)]] = KEPT
    owned = np.ones(len(flow.types), np.intp)
    owned[: len(arguments)] = [a.donate for a in arguments]
    return Lifetimes(births, ends, owned)


Donated: TypeAlias = dict[int, int | None]
"""The operands that a computation overwrites, each with the result that takes its memory; None if XLA chooses one."""


def donations(program: ProgramIR, alive: Lifetimes) -> dict[str, Donated]:
    """Finds, per computation, the operands that it overwrites: every one of its calls uses them for the last time.

    Donation is part of the compiled code. If one call still needs an operand, it is kept for all calls. An operand is
    only donated if a result of the same type and sharding can take its memory.
    """
    allowed: dict[str, Column] = {}
    first: dict[str, Node] = {}
    for call in program.flow.calls():
        if call.callee not in first:
            first[call.callee], allowed[call.callee] = call, _last_uses(program.flow, call, alive)
        elif allowed[call.callee].any():
            allowed[call.callee] &= _last_uses(program.flow, call, alive)
    positions = {callee: np.flatnonzero(each).tolist() for callee, each in allowed.items()}
    return {callee: _matched(program, call, positions[callee]) for callee, call in first.items()}


def _last_uses(flow: Flow, call: Node, alive: Lifetimes) -> Column:
    """Marks the operands that this call may overwrite."""
    taken = flow.operands_of(call)
    marked = (alive.ends[taken] == call.op.step) & alive.owned[taken]
    if marked.any() and len(set(call.operands)) < len(call.operands):
        count = Counter(call.operands)
        marked &= [count[v] == 1 for v in call.operands]
    return marked


def _matched(program: ProgramIR, call: Node, candidates: list[int]) -> Donated:
    """Selects candidates with a result of the same type and sharding. Each result is taken once."""
    types = program.flow.types
    results = [(types[r], s) for r, s in zip(call.results, call.op.out_shardings, strict=True)]
    wanted = frozenset(results)
    shardings = call.op.in_shardings
    arguments = {i: (types[call.operands[i]], shardings[i]) for i in candidates}
    arguments = {i: like for i, like in arguments.items() if like in wanted}
    if not arguments:
        return {}
    return pair_updates(arguments, results, updates_of(program.computations[call.callee], arguments))
