"""Rewrites the graph of a program so that a stacked array is stored in several buffers, called pieces. Each pipeline
stage then holds the pieces that it uses. `trace.py` calls it after the graph is built.

A whole stacked argument would be on one slice, and be sent to every stage in each step. Its gradient would return
padded with zeros. `partitions.py` decides which arrays are cut.

* A slice is a piece.
* A padded gradient is a piece; its other pieces are zero, and are not built.
* Elementwise operations are computed piece by piece, on the home mesh of the piece (homes.py).
* Operations that need the whole array join the pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jax import lax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.alike import RunOfEquations
from pathways.compiler.frontends.jax.compat import Aval, Eqn, body_of
from pathways.compiler.frontends.jax.graph import Constant, Loose, Operand, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.partitions import Window, find_partitions, windows_of
from pathways.compiler.frontends.jax.piecewise import (
    KEEP_ZERO,
    REDUCTIONS,
    Partition,
    along,
    piece_aval,
    piece_equation,
)
from pathways.compiler.frontends.jax.sink import substitute
from pathways.dialect.diagnostics import Where
from pathways.dialect.jax_api import numpy


@dataclass(eq=False)
class Pieces:
    """An array in pieces. A piece that is None is zero."""

    aval: Aval
    cuts: Partition
    parts: list[TracedValue | None]


@dataclass(eq=False)
class PartialResults:
    """A reduction over the cut axis: one partial result per piece, not combined yet."""

    aval: Aval
    combine: str
    parts: list[TracedValue]


_Known: TypeAlias = TracedValue | Pieces | PartialResults


@dataclass
class InPieces:
    """The cuts of a program's arguments and results; None for a whole one. If both lists are empty, all are whole."""

    inputs: list[Partition | None] = field(default_factory=list[Partition | None])
    outputs: list[Partition | None] = field(default_factory=list[Partition | None])
    joined: int = 0
    """Number of arrays that were joined, since an operation needs them whole."""
    split: int = 0
    """Number of whole arrays that were split."""


def cut_into_pieces(graph: TracedGraph) -> InPieces:
    """Rewrites the graph in place so that stacks are in pieces, and returns the cuts of its arguments and results."""
    partitions = find_partitions(graph)
    if not partitions:
        return InPieces()
    return _Walk(graph, partitions).walk()


@dataclass
class _Source:
    """The scope and line of an equation."""

    scope: str
    where: Where | None


@dataclass
class _Walk:
    graph: TracedGraph
    partitions: dict[TracedValue, Partition]
    known: dict[TracedValue, _Known] = field(default_factory=dict[TracedValue, _Known])
    """The new form of the graph's values, if it differs."""
    wholes: dict[TracedValue, TracedValue] = field(default_factory=dict[TracedValue, TracedValue])
    cut: dict[tuple[TracedValue, Partition], list[TracedValue]] = field(
        default_factory=dict[tuple[TracedValue, Partition], list[TracedValue]]
    )
    equations: dict[tuple[int, int, int], tuple[Eqn, Eqn]] = field(
        default_factory=dict[tuple[int, int, int], tuple[Eqn, Eqn]]
    )
    traced: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def walk(self) -> InPieces:
        graph, self.new = self.graph, TracedGraph([])
        self.run = RunOfEquations(self.new, join=True)
        self.found = InPieces([self.partitions.get(v) for v in graph.inputs], [])
        inputs: list[TracedValue] = []
        for value in graph.inputs:
            cuts = self.partitions.get(value)
            parts = [value] if cuts is None else _parts(value.aval, cuts)
            if cuts is not None:
                self.known[value] = Pieces(value.aval, cuts, [*parts])
            inputs += parts
        for node in graph.nodes:
            if isinstance(node, Loose):
                self._from = _Source(node.scope, node.where)
                for eqn, operands, outputs in node.equations():
                    self._equation(eqn, operands, outputs)
            else:
                self._from = _Source("", node.where)
                substitute(node, {v: self._whole(v) for v in node.inputs})
                self.run.add(node)
        results = [part for value in graph.outputs for part in self._result(value)]
        self.run.end()
        graph.inputs, graph.nodes, graph.outputs = inputs, self.new.nodes, results
        graph.prune()
        return self.found

    def _result(self, value: TracedValue) -> list[TracedValue]:
        cuts = self.partitions.get(value)
        self.found.outputs.append(cuts)
        if cuts is None:
            return [self._whole(value)]
        parts = self._pieces(value, cuts)
        return [self._zeros(value.aval, cuts, i) if p is None else p for i, p in enumerate(parts)]

    def _equation(self, eqn: Eqn, operands: Sequence[Operand], outputs: Sequence[TracedValue]) -> None:
        """Adds an equation to the new graph: by pieces if possible, otherwise on whole operands."""
        cuts = self.partitions.get(outputs[0]) if len(outputs) == 1 else None
        if self._windows(eqn, operands, outputs) or self._reduced(eqn, operands, outputs):
            return
        if cuts is not None:
            axes = along(eqn, cuts.axis)
            if axes is not None:
                self.known[outputs[0]] = Pieces(outputs[0].aval, cuts, self._by_pieces(eqn, operands, cuts, axes))
                return
            if eqn.primitive.name == "concatenate" and _sizes_along(operands, cuts.axis) == cuts.sizes:
                parts = [self._whole(self._value(o)) for o in operands]
                self.known[outputs[0]] = Pieces(outputs[0].aval, cuts, [*parts])
                return
        self._add(eqn, [self._whole(o) if isinstance(o, TracedValue) else o for o in operands], outputs)

    def _by_pieces(
        self, eqn: Eqn, operands: Sequence[Operand], cuts: Partition, axes: tuple[int | None, ...]
    ) -> list[TracedValue | None]:
        columns: list[Sequence[Operand]] = []
        for operand, axis in zip(operands, axes, strict=True):
            if axis is not None:
                columns.append(self._pieces(self._value(operand), cuts.moved(axis)))
            else:
                whole = self._whole(operand) if isinstance(operand, TracedValue) else operand
                columns.append([whole] * len(cuts.sizes))
        name = eqn.primitive.name
        parts: list[TracedValue | None] = []
        for number, size in enumerate(cuts.sizes):
            taken = [column[number] for column in columns]
            if name in KEEP_ZERO and taken[0] is None:
                parts.append(None)
                continue
            if name in ("add", "add_any") and None in taken:
                left = [t for t in taken if t is not None]
                parts.append(left[0] if left else None)
                continue
            for i, axis in enumerate(axes):
                if axis is not None and taken[i] is None:
                    taken[i] = self._zeros(operands[i].aval, cuts.moved(axis), number)
            made = self._of_piece(eqn, cuts.axis, size)
            output = TracedValue(made.outvars[0].aval)
            self._add(made, taken, [output])
            parts.append(output)
        return parts

    def _windows(self, eqn: Eqn, operands: Sequence[Operand], outputs: Sequence[TracedValue]) -> bool:
        """Replaces a slice of pieces by a piece or a part of one, and a zero-padded value by a piece."""
        windows = list(windows_of(eqn, operands, outputs))
        cuts = self.partitions.get(windows[0].whole) if windows else None
        if cuts is None or cuts.axis != windows[0].axis:
            return False
        if windows[0].reads:
            found = [self._window(w, cuts) for w in windows]
            if any(part is None for part in found):
                return False
            self.known.update((w.part, part) for w, part in zip(windows, found, strict=True) if part is not None)
            return True
        if windows[0].interval not in cuts.intervals:
            return False
        part = self._whole(windows[0].part)
        filled = [part if i == windows[0].interval else None for i in cuts.intervals]
        self.known[outputs[0]] = Pieces(outputs[0].aval, cuts, filled)
        return True

    def _window(self, window: Window, cuts: Partition) -> TracedValue | None:
        """Returns the value of a window of pieces; None if the window crosses a cut."""
        parts = self._pieces(window.whole, cuts)
        for number, (start, stop) in enumerate(cuts.intervals):
            if start <= window.start and window.stop <= stop:
                part = parts[number]
                part = self._zeros(window.whole.aval, cuts, number) if part is None else part
                if (start, stop) == window.interval:
                    return part
                return self._sliced(part, cuts.axis, window.start - start, window.stop - start)
        return None

    def _reduced(self, eqn: Eqn, operands: Sequence[Operand], outputs: Sequence[TracedValue]) -> bool:
        """Reduces each piece over the cut axis. Sums of such results stay in pieces as long as possible."""
        name, first = eqn.primitive.name, operands[0] if operands else None
        if name in REDUCTIONS and isinstance(first, TracedValue):
            cuts = self.partitions.get(first)
            if cuts is None or cuts.axis not in eqn.params["axes"]:
                return False
            pieces = self._pieces(first, cuts)
            parts: list[TracedValue] = []
            for number, part in enumerate(pieces):
                output = TracedValue(outputs[0].aval)
                taken = self._zeros(first.aval, cuts, number) if part is None else part
                self._add(eqn, [taken], [output])
                parts.append(output)
            self.known[outputs[0]] = PartialResults(outputs[0].aval, REDUCTIONS[name], parts)
            return True
        found = [self.known.get(o) if isinstance(o, TracedValue) else o for o in operands]
        match found:
            case [compat.Literal(val=0), PartialResults(combine="add") as same] if name == "add":
                self.known[outputs[0]] = same
                return True
            case [PartialResults() as a, PartialResults() as b] if (
                name in (a.combine, "add_any" if a.combine == "add" else name) and a.combine == b.combine == "add"
            ) and len(a.parts) == len(b.parts):
                sums = [TracedValue(outputs[0].aval) for _ in a.parts]
                for one, other, output in zip(a.parts, b.parts, sums, strict=True):
                    self._add(eqn, [one, other], [output])
                self.known[outputs[0]] = PartialResults(outputs[0].aval, "add", sums)
                return True
            case _:
                return False

    def _value(self, operand: Operand) -> TracedValue:
        """Returns an operand as a value; a literal becomes a constant."""
        if isinstance(operand, TracedValue):
            return operand
        return Constant(operand.aval, np.asarray(operand.val, dtype=operand.aval.dtype), str(operand.val))

    def _pieces(self, value: TracedValue, cuts: Partition) -> Sequence[TracedValue | None]:
        """Returns a value in these pieces, and cuts it here if it is whole."""
        known = self.known.get(value)
        if isinstance(known, Pieces) and known.cuts == cuts:
            return known.parts
        whole = self._whole(value)
        if (whole, cuts) not in self.cut:
            self.found.split += not isinstance(whole, Constant)
            self.cut[whole, cuts] = [self._sliced(whole, cuts.axis, a, b) for a, b in cuts.intervals]
        return self.cut[whole, cuts]

    def _whole(self, value: TracedValue) -> TracedValue:
        """Returns a value as one array, and joins it if it is in pieces."""
        known = self.known.get(value, value)
        if isinstance(known, TracedValue):
            return known
        if value not in self.wholes:
            if isinstance(known, Pieces):
                self.found.joined += 1
                parts = [self._zeros(known.aval, known.cuts, i) if p is None else p for i, p in enumerate(known.parts)]
                (whole,) = self._do(("join", known.cuts.axis), _joining(known.cuts.axis), parts)
            else:
                (whole,) = self._do((known.combine,), _COMBINE[known.combine], known.parts)
            self.wholes[value] = whole
        return self.wholes[value]

    def _sliced(self, whole: TracedValue, axis: int, start: int, stop: int) -> TracedValue:
        if isinstance(whole, Constant) and not compat.is_key(whole.aval):
            index = (slice(None),) * axis + (slice(start, stop),)
            aval = piece_aval(whole.aval, axis, stop - start)
            return Constant(aval, np.asarray(whole.array)[index], f"{whole.name}[{start}:{stop}]")
        key = "slice", axis, start, stop
        return self._do(key, _slicing(axis, start, stop), [whole])[0]

    def _zeros(self, aval: Aval, cuts: Partition, number: int) -> TracedValue:
        made = piece_aval(aval, cuts.axis, cuts.sizes[number])
        return self._do(("zeros", str(made)), lambda: [numpy.zeros(made.shape, made.dtype)], [])[0]

    def _of_piece(self, eqn: Eqn, axis: int, size: int) -> Eqn:
        """Returns one equation object for equal pieces, so that they are recognized as the same computation."""
        key = id(eqn), axis, size
        if key not in self.equations:
            self.equations[key] = eqn, piece_equation(eqn, axis, size)
        return self.equations[key][1]

    def _do(self, key: tuple[Any, ...], function: Any, operands: Sequence[TracedValue]) -> list[TracedValue]:
        """Traces a function, and adds its equations as unplaced ones."""
        full = *key, *(str(v.aval) for v in operands)
        if full not in self.traced:
            self.traced[full] = compat.traced_jaxpr(function, *(compat.struct(v.aval) for v in operands))
        body = body_of(self.traced[full])
        env: dict[Any, Any] = dict(zip(body.invars, operands, strict=True))
        for eqn in body.eqns:
            outputs = [TracedValue(v.aval) for v in eqn.outvars]
            self._add(eqn, [a if isinstance(a, compat.Literal) else env[a] for a in eqn.invars], outputs)
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [env[v] for v in body.outvars]

    def _add(self, eqn: Eqn, operands: list[Operand], outputs: Sequence[TracedValue]) -> None:
        self.run.loose(eqn, operands, [*outputs], self._from.scope, self._from.where)


def _parts(aval: Aval, cuts: Partition) -> list[TracedValue]:
    return [TracedValue(piece_aval(aval, cuts.axis, size)) for size in cuts.sizes]


def _sizes_along(operands: Sequence[Operand], axis: int) -> tuple[int, ...]:
    return tuple(o.aval.shape[axis] for o in operands)


def _joining(axis: int) -> Any:
    def join(*parts: Any) -> list[Any]:
        return [lax.concatenate(parts, axis)]

    return join


def _slicing(axis: int, start: int, stop: int) -> Any:
    def cut(whole: Any) -> list[Any]:
        return [lax.slice_in_dim(whole, start, stop, axis=axis)]

    return cut


def _chained(combine: Any) -> Any:
    def function(*parts: Any) -> list[Any]:
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        return [total]

    return function


_COMBINE = {
    "add": _chained(lax.add),
    "mul": _chained(lax.mul),
    "max": _chained(lax.max),
    "min": _chained(lax.min),
    "and": _chained(lax.bitwise_and),
    "or": _chained(lax.bitwise_or),
}
