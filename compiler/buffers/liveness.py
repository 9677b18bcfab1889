"""Finds when each value of a program is made and when it is used for the last time. It also finds if that last use may
overwrite (donate) the buffer. Buffer planning calls it. Pure functions.

`streams.py` and the pass `plan_islands` use it.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pathways.compiler.computations.updates import pair_updates, updates_of
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR

BEFORE, KEPT = -1, -1
"""The birth of a value that exists before the first step; the death of a value that is never freed."""


@dataclass(frozen=True)
class Lifetimes:
    """For each value, by number: the step that makes it, the step of its last use, and its rights.

    `kept`: a result or a constant, which is never freed. `owned`: the value is neither the caller's nor a constant, so
    the program may overwrite it after its last use, unless it is kept.
    """

    births: list[int]
    deaths: list[int]
    kept: list[bool]
    owned: list[bool]

    @cached_property
    def ends(self) -> list[int]:
        """For each value, the step after which it is freed or overwritten; KEPT if never."""
        return [KEPT if kept else death for kept, death in zip(self.kept, self.deaths, strict=True)]


def lifetimes(program: ProgramIR) -> Lifetimes:
    """Computes the lifetimes of all values, in the order of the program's steps."""
    flow, arguments = program.flow, program.arguments
    births = [BEFORE] * len(arguments)
    deaths = [BEFORE] * len(arguments)
    kept = [a.is_constant for a in arguments]
    owned = [a.donate for a in arguments]
    for node in flow.nodes:
        step: int = node.op.step
        for value in node.operands:
            deaths[value] = step
        more = len(node.results)
        births += [step] * more
        deaths += [step] * more
        kept += [False] * more
        owned += [True] * more
    for value in flow.returned:
        kept[value] = True
    return Lifetimes(births, deaths, kept, owned)


Donated: TypeAlias = dict[int, int | None]
"""The operands that a computation overwrites, each with the result that takes its memory; None if XLA chooses one."""


def donations(program: ProgramIR, alive: Lifetimes) -> dict[str, Donated]:
    """Finds, per computation, the operands that it overwrites: every one of its calls uses them for the last time.

    Donation is part of the compiled code. If one call still needs an operand, it is kept for all calls. An operand is
    only donated if a result of the same type and sharding can take its memory.
    """
    allowed: dict[str, set[int]] = {}
    first: dict[str, Node] = {}
    for call in program.flow.calls():
        first.setdefault(call.callee, call)
        candidates = allowed.get(call.callee)
        if candidates is None or candidates:
            allowed[call.callee] = _last_uses(call, alive, candidates)
    return {callee: _matched(program, call, allowed[callee]) for callee, call in first.items()}


def _last_uses(call: Node, alive: Lifetimes, candidates: set[int] | None) -> set[int]:
    """Returns positions of operands that this call may overwrite, out of those that all earlier calls may."""
    operands, step = call.operands, call.op.step
    count = Counter(operands)
    ends, owned = alive.ends, alive.owned
    return {
        i
        for i in (range(len(operands)) if candidates is None else candidates)
        if ends[v := operands[i]] == step and owned[v] and count[v] == 1
    }


def _matched(program: ProgramIR, call: Node, candidates: set[int]) -> Donated:
    """Selects candidates with a result of the same type and sharding. Each result is taken once."""
    types = program.flow.types
    results = [(types[r], s) for r, s in zip(call.results, call.op.out_shardings, strict=True)]
    wanted = frozenset(results)
    shardings = call.op.in_shardings
    arguments = {i: (types[call.operands[i]], shardings[i]) for i in sorted(candidates)}
    arguments = {i: like for i, like in arguments.items() if like in wanted}
    if not arguments:
        return {}
    return pair_updates(arguments, results, updates_of(program.computations[call.callee], arguments))
