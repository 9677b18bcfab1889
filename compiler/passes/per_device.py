"""Defines the pass `per-device`. It adds a module for one device to each computation whose devices exchange no data.
The runtime can then start such devices one by one, which is cheaper on CPU.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.compiler.computations.localize import MAX_FLOPS, MAX_OPERATIONS, localize
from pathways.compiler.computations.signature import signature_of
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.ir.program import PER_DEVICE_OF, ProgramIR
from pathways.dialect.mlir import Module, ir
from pathways.dialect.phases import Phase
from pathways.dialect.platforms import platform_named


@dataclass(frozen=True)
class PerDevice(Pass):
    """Writes a one-device module of each computation without collectives, if the platform starts devices separately.

    Starting a gang costs more than starting its devices one by one (on CPU seven times). It is only worth it if the
    devices communicate. The runtime chooses between the two modules. Platforms that start a gang cheaply have one
    module.

    Requires: phase plan.
    Ensures: phase plan; beside each computation that allows it a module for one device, marked `pw.per_device_of`.
    """

    name: ClassVar[str] = "per-device"
    requires: ClassVar[Phase] = Phase.PLAN
    ensures: ClassVar[Phase] = Phase.PLAN
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset({"computations"})
    operations: int = MAX_OPERATIONS
    """Maximum operations of a computation that gets a one-device module."""
    flops: float = MAX_FLOPS
    """Maximum work on one device. For longer computations the cost of the start does not matter."""

    def apply(self, program: ProgramIR, session: Session) -> None:
        for old in program.per_device.values():
            old.erase()
        program.per_device.clear()
        if not platform_named(program.platform).apart:
            return
        with program.context:
            for function in program.functions:
                for symbol, computation in function.computations.items():
                    own = signature_of(computation)
                    found = localize(
                        computation, own.axes, own.in_layouts, own.out_layouts, self.operations, self.flops
                    )
                    if found is not None:
                        _add(program, symbol, found)


def _add(program: ProgramIR, symbol: str, module: Module) -> None:
    made = module.operation.clone(ir.InsertionPoint(program.base.body)).operation
    made.attributes["sym_name"] = ir.StringAttr.get(program.unique_symbol(f"{symbol}_per_device"))
    made.attributes[PER_DEVICE_OF] = ir.FlatSymbolRefAttr.get(symbol)
    program.per_device[symbol] = made
