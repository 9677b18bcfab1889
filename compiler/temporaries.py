"""How much memory executables need while they run, beside their arguments and results: asked of XLA, or estimated."""

from typing import Any, Protocol

from pathways.dialect.dtypes import from_mlir
from pathways.dialect.mlir import Operation, bytecode, portable
from pathways.dialect.program import Program


class Analyzer(Protocol):
    """Knows what a computation costs on the devices at hand. The runtime implements it."""

    def temporaries(self, module: bytes, devices: int) -> int | None:
        """Bytes on one device beside arguments and results; None: this host cannot say."""
        ...


def temporaries_of(program: Program, analyzer: Analyzer | None) -> dict[str, int]:
    """For each computation the bytes of its temporaries on one device. Without an analyzer an estimate."""
    found: dict[str, int] = {}
    for symbol, computation in program.computations.items():
        devices = computation.attributes["mhlo.num_partitions"].value
        known = None
        if analyzer is not None:
            known = analyzer.temporaries(portable(bytecode(computation)), devices)
        found[symbol] = estimate(computation, devices) if known is None else known
    return found


_KEPT = frozenset(
    {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_permute",
        "concatenate",
        "convolution",
        "custom_call",
        "dot",
        "dot_general",
        "dynamic_update_slice",
        "fft",
        "gather",
        "reduce",
        "reduce_scatter",
        "reduce_window",
        "scatter",
        "select_and_scatter",
        "sort",
        "while",
    }
)
"""StableHLO operations whose results XLA keeps in memory; others are mostly fused into who reads them."""


def estimate(computation: Operation, devices: int) -> int:
    """The most bytes of intermediate results alive at once, split evenly over devices.

    A guess without the compiler of the platform: results of `_KEPT` live until their last reader, through operations
    that are fused into it; layouts, padding and scratch memory are unknown.
    """
    functions = {
        op.operation.attributes["sym_name"].value: op.operation
        for op in computation.regions[0].blocks[0].operations
        if op.operation.name == "func.func"
    }
    known: dict[str, int] = {}

    def of_function(name: str) -> int:
        if name not in known:
            known[name] = 0  # a recursive function would not end
            known[name] = _peak(functions[name].regions[0].blocks[0], of_function) if name in functions else 0
        return known[name]

    return -(-of_function("main") // max(devices, 1))


def _peak(block: Any, of_function: Any) -> int:
    """The peak of one block; values that it returns are its caller's."""
    operations = [op.operation for op in block.operations]
    needed: dict[Any, int] = {}
    """For each value the last operation that reads its memory, itself or through fused ones."""
    for at in range(len(operations) - 1, -1, -1):
        op = operations[at]
        fused = not _kept(op) and op.name != "func.call" and len(op.results) > 0
        last = max((needed.get(r, at) for r in op.results), default=at) if fused else at
        for value in op.operands:
            needed[value] = max(needed.get(value, 0), last)
    returned = set(operations[-1].operands) if operations else set()
    live = peak = 0
    ends: dict[int, int] = {}
    for at, op in enumerate(operations):
        inner = sum(_peak(r.blocks[0], of_function) for r in op.regions) if op.name == "stablehlo.while" else 0
        if op.name == "func.call":
            inner = of_function(op.attributes["callee"].value)
        if _kept(op) or op.name == "func.call":
            size = sum(from_mlir(r.type).bytes for r in op.results if r not in returned and r in needed)
            live += size
            last = max((needed.get(r, at) for r in op.results), default=at)
            ends[last] = ends.get(last, 0) + size
        peak = max(peak, live + inner)
        live -= ends.pop(at, 0)
    return peak


def _kept(op: Any) -> bool:
    return op.name.startswith("stablehlo.") and op.name.partition(".")[2] in _KEPT
