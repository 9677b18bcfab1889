"""Finds how much temporary memory the executable of a computation needs, besides arguments and results. It asks XLA if
devices are available, and estimates otherwise. Passes that plan memory call it.

The passes `rematerialize` and `plan_islands` call it.
"""

from typing import Any, Protocol

from pathways.compiler.computations.inline import inlined
from pathways.dialect.dtypes import from_mlir
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.functions import main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import WITHOUT_USES, Operation, bytecode, portable


class Analyzer(Protocol):
    """Measures the cost of computations on the devices at hand. The runtime implements it."""

    def temporaries(self, module: bytes, devices: int) -> int | None:
        """Returns bytes on one device, without arguments and results; None if this host cannot measure them."""
        ...


def temporaries_of(program: ProgramIR, analyzer: Analyzer | None) -> dict[str, int]:
    """Returns, per computation, the bytes of its temporaries on one device. Estimates them without an analyzer."""
    found: dict[str, int] = {}
    for symbol, computation in program.computations.items():
        devices = computation.attributes["mhlo.num_partitions"].value
        known = None
        if analyzer is not None and not read_callbacks(computation):
            known = analyzer.temporaries(portable(bytecode(computation, WITHOUT_USES)), devices)
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
"""StableHLO operations whose results XLA keeps in memory. Others are mostly fused into their consumers."""


def estimate(computation: Operation, devices: int) -> int:
    """Estimates the maximum bytes of live intermediate results, split evenly over devices.

    This is a guess without the compiler of the platform. Results of `_KEPT` operations live until their last reader,
    including readers through fused operations. Each result of the computation is finished before the next. Layouts,
    padding and scratch memory are unknown.
    """
    module = inlined(computation)
    return -(-_peak(main_of(module.operation).operation.regions[0].blocks[0]) // max(devices, 1))


def _peak(block: Any) -> int:
    """Returns the peak of one block. The values that it returns belong to its caller."""
    operations = [op.operation for op in block.operations]
    returned = list(operations[-1].operands) if operations else []
    order = _depth_first(operations[:-1], returned)
    last: dict[Any, int] = {}
    """For each value, the last operation that reads its memory, directly or through fused operations."""
    for at in range(len(order) - 1, -1, -1):
        op = order[at]
        until = at if _kept(op) else max((last.get(r, at) for r in op.results), default=at)
        for value in op.operands:
            last[value] = max(last.get(value, 0), until)
    mine = set(returned)
    live = peak = 0
    ends: dict[int, int] = {}
    for at, op in enumerate(order):
        inner = sum(_peak(r.blocks[0]) for r in op.regions) if op.name == "stablehlo.while" else 0
        if _kept(op):
            size = sum(from_mlir(r.type).bytes for r in op.results if r not in mine)
            live += size
            end = max((last.get(r, at) for r in op.results), default=at)
            ends[end] = ends.get(end, 0) + size
        peak = max(peak, live + inner)
        live -= ends.pop(at, 0)
    return peak


def _depth_first(operations: list[Any], returned: list[Any]) -> list[Any]:
    """Orders operations so that each returned value is finished before the next. Dead operations are left out."""
    maker = {r: at for at, op in enumerate(operations) for r in op.results}
    order: list[Any] = []
    done: set[int] = set()
    waiting = [(maker[v], False) for v in reversed(returned) if v in maker]
    while waiting:
        at, ready = waiting.pop()
        if at in done:
            continue
        if ready:
            done.add(at)
            order.append(operations[at])
        else:
            waiting.append((at, True))
            waiting += [(maker[v], False) for v in reversed(list(operations[at].operands)) if v in maker]
    return order


def _kept(op: Any) -> bool:
    return op.name.startswith("stablehlo.") and op.name.partition(".")[2] in _KEPT
