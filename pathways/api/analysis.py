"""Computes the costs of a compiled program in the terms of `jax.stages`: flops and bytes of a run, memory of a device.
`Compiled.cost_analysis` and `Compiled.memory_analysis` use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.plan.memory import peak
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.user_line import caller


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes on the fullest device of an island, under the names that `jax.stages` uses.

    Arguments and results of the program count if they are on that device. `alias` is the size of donated arguments,
    whose memory is reused. `temp` is the memory needed at the peak beyond arguments, results and code: values between
    computations, and temporaries of executables. `peak` is the maximum of live bytes, without code.
    """

    island: str
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int


def memory_of(plan: Plan, island: str, code: int) -> MemoryAnalysis:
    """Analyzes the memory of one island, whose executables take `code` bytes on a device."""
    found = peak(plan, island)
    inputs = {p.slot: p for p in plan.inputs if p.island == island and p.slot >= 0}
    results = {p.slot: p for p in plan.results if p.island == island and p.slot not in inputs}
    arguments = _bytes(plan, list(inputs.values()), found.device)
    outputs = _bytes(plan, list(results.values()), found.device)
    given = _bytes(plan, [p for p in inputs.values() if p.donated], found.device)
    temporary = max(0, found.bytes - (arguments + outputs - given))
    return MemoryAnalysis(island, arguments, outputs, given, temporary, code, found.bytes)


def _bytes(plan: Plan, ports: Sequence[Port], device: int) -> int:
    """Counts the bytes of arguments or results on one device of an island."""
    buffers = [plan.stream(p.island).kind_of[p.slot] for p in ports]
    return sum(b.bytes for b in buffers if device in plan.meshes[b.layout.mesh].devices)


def requested_islands(plan: Plan, island: str | None) -> list[str]:
    """Returns the island of this name, or all islands of the plan. Raises PWC0104 if the plan does not use it."""
    used = [s.island for s in plan.streams]
    if island is None:
        return used
    if island not in used:
        raise PathwaysError(
            BadArguments(
                problem=f"{plan.name} does not run on {island}",
                have_=f"island={island!r}",
                rule=f"one of {', '.join(used)}",
                advice="omit island for the whole program",
                where=caller(),
            )
        )
    return [island]
