"""Makes one copy of a computation for each combination of argument and result shardings with which it is called.
`propagate_shardings.py` calls it when these shardings are known.
"""

from dataclasses import dataclass
from typing import Any

from pathways.compiler.computations.shardy import SignatureShardings, write_signature
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import Module, Operation, ir
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Axes


@dataclass(frozen=True)
class Special:
    """A computation specialized to the shardings of its calls."""

    callee: str
    ins: tuple[Placed, ...]
    outs: tuple[Placed, ...]


class Originals:
    """Computations before any signature was written, kept alive with the modules that hold them."""

    def __init__(self) -> None:
        self._modules: dict[str, Module] = {}
        self.variants: dict[str, dict[str, tuple[Axes, SignatureShardings]]] = {}
        """For each computation its current symbols, and the signature of each."""

    def first(self, callee: str, computation: Operation) -> bool:
        """Keeps a copy at the first request for `callee`. Returns whether this was the first request."""
        if callee in self._modules:
            return False
        self._modules[callee] = ir.Module.create()
        computation.clone(ir.InsertionPoint(self._modules[callee].body))
        return True

    def clone(self, callee: str, ip: Any) -> Operation:
        return self._modules[callee].body.operations[0].operation.clone(ip)


def specialize(program: ProgramIR, call: Node, signature: SignatureShardings, originals: Originals) -> str:
    """Returns the symbol of the call's computation with this signature: the original at its first use, then clones."""
    callee = call.callee
    axes = program.mesh(call.mesh).axes
    for symbol, written in originals.variants.setdefault(callee, {}).items():
        if written == (axes, signature):
            return symbol
    original = program.computations[callee]
    symbol = callee
    if originals.first(callee, original):
        write_signature(original, axes, signature)
    else:
        symbol = program.unique_symbol(callee)
        clone = originals.clone(callee, ir.InsertionPoint(original))
        clone.attributes["sym_name"] = ir.StringAttr.get(symbol)
        write_signature(clone, axes, signature)
        program.computations[symbol] = clone
    originals.variants[callee][symbol] = (axes, signature)
    return symbol
