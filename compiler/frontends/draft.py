"""Holds the unfinished IR of a program while a front end builds it: slices, meshes, symbols, types and computations.
`builder.py` uses one draft for all functions of a program.
"""

import re
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.called import CalledComputation, ParsedComputation, parse_called
from pathways.dialect.diagnostics import Where
from pathways.dialect.ir import pw
from pathways.dialect.ir.materialize import Contents
from pathways.dialect.mlir import Module, ir, location, make_context
from pathways.dialect.sharding import MeshSpec
from pathways.dialect.sources import Sources, remember_sources
from pathways.dialect.symbols import free_symbol


@dataclass(frozen=True)
class SliceSpec:
    """A slice that a program requests: devices with fast links. Slices are named in the order of `number`.

    `near` is a slice that must share its island, `pin` the name of its island. The other fields are as in `pw.slice`.
    """

    number: int
    devices: int
    prefer: str | None = None
    kind: str | None = None
    near: "SliceSpec | None" = None
    pin: str | None = None
    shape: tuple[int, ...] | None = None
    where: Where | None = None


class ModuleDraft:
    """A module that is being built, shared by all functions of a program."""

    def __init__(self, symbol: str, where: Where | None, sources: Sources) -> None:
        self.context = make_context()
        self.here = ir.Location.unknown(self.context)
        self.module: Module = ir.Module.create(self.here)
        self.before: Any = ir.InsertionPoint(self.module.body)
        """Insertion point of symbols: before the innermost function that has not returned."""
        self.functions: dict[str, Contents] = {}
        """The contents of the functions that have returned, by symbol."""
        self.begun = 0
        """The number of functions started so far."""
        self._where, self._sources = where, sources
        self._slices: dict[SliceSpec, str] = {}
        self._meshes: dict[tuple[SliceSpec, MeshSpec], str] = {}
        self._symbols = {symbol}
        self._parsed: dict[str | bytes, ParsedComputation] = {}
        self._called: dict[tuple[str, str], tuple[str, ParsedComputation]] = {}
        remember_sources(self.context, sources)

    def at(self, where: Where | None, name: str) -> Any:
        """Returns a location with `name` at a line of the user's, or at the program's line if there is none."""
        for place in (where, self._where):
            file = None if place is None else self._sources.stored(place.file)
            if place is not None and file is not None:
                return location(Where(file, place.line, place.function), name, self.context)
        return location(None, name, self.context)

    def unique(self, name: str) -> str:
        """Returns a symbol that is not in use, and reserves it."""
        symbol = free_symbol(symbol_of(name), self._symbols.__contains__)
        self._symbols.add(symbol)
        return symbol

    def mesh(self, slice_: SliceSpec, mesh: MeshSpec) -> str:
        key = slice_, mesh
        if key not in self._meshes:
            owner = self._slice(slice_)
            symbol = self._meshes[key] = f"m{len(self._meshes)}"
            at = self.at(slice_.where, symbol)
            with self.here:
                pw.MeshOp.create(
                    ip=self.before, loc=at, sym_name=symbol, slice=owner, axes=mesh.axes, devices=mesh.devices
                )
        return self._meshes[key]

    def _slice(self, spec: SliceSpec) -> str:
        if spec not in self._slices:
            symbol = self._slices[spec] = f"s{len(self._slices)}"
            near = None if spec.near is None else self._slice(spec.near)
            with self.here:
                pw.SliceOp.create(
                    ip=self.before,
                    loc=self.at(spec.where, symbol),
                    sym_name=symbol,
                    devices=spec.devices,
                    prefer=spec.prefer,
                    kind=spec.kind,
                    near=near,
                    pin=spec.pin,
                    shape=spec.shape,
                )
        return self._slices[spec]

    def number_slices(self) -> dict[str, SliceSpec]:
        """Renames slices in the order of their numbers, independent of first use: the first pipeline stage is s0."""
        specs = {f"s{i}": spec for i, spec in enumerate(sorted(self._slices, key=lambda s: s.number))}
        names = {self._slices[spec]: new for new, spec in specs.items()}
        if list(names) == list(names.values()):
            return specs
        operations = [op for op in self.module.body.operations if isinstance(op, (pw.SliceOp, pw.MeshOp))]
        slices = {op.sym_name: op for op in operations if isinstance(op, pw.SliceOp)}
        for old, new in reversed(names.items()):
            op, first = slices[old], self.module.body.operations[0]
            if op.operation != first.operation:
                op.operation.move_before(first.operation)
            op.sym_name, op.near = new, None if op.near is None else names[op.near]
            op.operation.location = self.at(specs[new].where, new)
        for op in operations:
            if isinstance(op, pw.MeshOp):
                op.slice = names[op.slice]
        return specs

    def callee(
        self, computation: CalledComputation, function: str, where: Where | None
    ) -> tuple[str, ParsedComputation]:
        """Returns the symbol and content of a computation for one function. Each function has its own copy."""
        source = computation.source
        if source not in self._parsed:
            self._parsed[source] = parse_called(computation, where, self.context, self._sources)
        parsed = self._parsed[source]
        key = function, parsed.digest
        if key not in self._called:
            self._called[key] = self.unique(computation.name), parsed
        return self._called[key]

    def insert_computations(self) -> None:
        for symbol, parsed in self._called.values():
            nested = parsed.module.operation.clone(self.before)
            nested.attributes["sym_name"] = ir.StringAttr.get(symbol)


def symbol_of(name: str) -> str:
    """Makes a readable symbol: `<lambda>` becomes `lambda`. `s0` and `m0` are reserved for slices and meshes."""
    readable = re.sub(r"\W+", "_", name).strip("_") or "computation"
    return f"{readable}_fn" if re.fullmatch(r"[sm]\d+", readable) else readable


def printable_name(name: str) -> str:
    """Returns the name that a printed value carries."""
    return re.sub(r"\W+", "_", name).strip("_") or "value"
