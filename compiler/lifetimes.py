"""When each value is born, who uses it last, and whether that use may overwrite it. Pure; the plan pass writes it."""

from collections import Counter
from dataclasses import dataclass

from pathways.dialect import pw
from pathways.dialect.mlir import Value
from pathways.dialect.program import Program, array_type
from pathways.dialect.sdy import Placed


@dataclass
class Lifetime:
    """Steps of one value; `birth` -1: there before the first step; `kept`: a result or a constant, never freed."""

    birth: int
    death: int
    kept: bool
    owned: bool
    """Whether the program may overwrite it: not the caller's, not a constant."""


def lifetimes(program: Program, places: dict[Value, Placed]) -> dict[Value, Lifetime]:
    """The lifetime of every value that has a place."""
    found: dict[Value, Lifetime] = {}
    for value, argument in zip(program.block.arguments, program.arguments, strict=True):
        if value in places:
            found[value] = Lifetime(-1, -1, argument.is_constant, argument.donate)
    for op in program.nodes():
        step = op.step or 0
        for value in op.operands:
            found[value].death = step
        for result in op.results:
            found[result] = Lifetime(step, step, False, True)
    for value in program.returned:
        found[value].kept = True
        found[value].owned = False
    return found


def donations(program: Program, alive: dict[Value, Lifetime]) -> dict[str, tuple[int, ...]]:
    """For each computation the operands it overwrites: those that every one of its calls uses for the last time.

    Donation is part of the compiled code, so that one call that still needs an operand keeps it for all. An operand
    is donated only where a result of the same type and sharding can take its memory.
    """
    allowed: dict[str, set[int]] = {}
    for call in program.calls():
        mine = _last_uses(call, alive)
        allowed[call.callee] = allowed[call.callee] & mine if call.callee in allowed else mine
    chosen: dict[str, tuple[int, ...]] = {}
    for call in program.calls():
        if call.callee not in chosen:
            chosen[call.callee] = _matched(call, sorted(allowed[call.callee]))
    return chosen


def _last_uses(call: pw.CallOp, alive: dict[Value, Lifetime]) -> set[int]:
    operands = list(call.operands)
    repeated = {v for v, n in Counter(operands).items() if n > 1}
    return {
        i
        for i, v in enumerate(operands)
        if alive[v].owned and not alive[v].kept and alive[v].death == call.step and v not in repeated
    }


def _matched(call: pw.CallOp, candidates: list[int]) -> tuple[int, ...]:
    """The candidates for which there is a result of the same type and sharding, each result taken once."""
    free: Counter[tuple[str, Placed]] = Counter(
        (str(array_type(r)), s) for r, s in zip(call.results, call.out_shardings or (), strict=True)
    )
    taken: list[int] = []
    operands, shardings = list(call.operands), call.in_shardings or ()
    for i in candidates:
        key = (str(array_type(operands[i])), shardings[i])
        if free[key] > 0:
            free[key] -= 1
            taken.append(i)
    return tuple(taken)
