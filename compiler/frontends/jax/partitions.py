"""Finds arrays that are better stored in several buffers, called pieces. An example is a stack of all layers' weights,
of which each pipeline stage uses a part. `pieces.py` then rewrites the graph.

The search starts at *windows*: slices of a value, and zero-padded values (the gradients of slices). Equations that can
be applied piece by piece tie values together, in both directions. An optimizer's moments are thus cut like the
gradients.

Tied values are cut if three conditions hold:

* their windows cover one axis;
* the windows go to different slices of devices;
* an argument or a result of the program is among the values.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.graph import (
    Call,
    ExplicitMove,
    GraphNode,
    Loose,
    Operand,
    TracedGraph,
    TracedValue,
)
from pathways.compiler.frontends.jax.piecewise import Partition, along, followed

WINDOWS = frozenset({"slice", "split", "pad"})
_Axis: TypeAlias = tuple[TracedValue, int]
"""An axis of a value."""


@dataclass(frozen=True)
class Window:
    """A range of one axis of a value that a slice reads or a pad fills. `part` is the value of that range alone."""

    whole: TracedValue
    axis: int
    start: int
    stop: int
    part: TracedValue
    reads: bool

    @property
    def interval(self) -> tuple[int, int]:
        return self.start, self.stop


def windows_of(eqn: Eqn, operands: Sequence[Operand], outputs: Sequence[TracedValue]) -> Iterator[Window]:
    """Yields the windows that an equation reads or fills along one axis; none for other equations."""
    if eqn.primitive.name not in WINDOWS or not isinstance(operands[0], TracedValue):
        return
    params, given, made = eqn.params, operands[0], outputs[0]
    match eqn.primitive.name:
        case "slice" if set(params["strides"] or (1,)) == {1}:
            bounds = list(zip(params["start_indices"], params["limit_indices"], strict=True))
            if (axis := _only(a for a, b in enumerate(bounds) if b != (0, given.aval.shape[a]))) is not None:
                start, stop = bounds[axis]
                yield Window(given, axis, int(start), int(stop), made, reads=True)
        case "split":
            start = 0
            for size, part in zip(params["sizes"], outputs, strict=True):
                yield Window(given, params["axis"], start, start + int(size), part, reads=True)
                start += int(size)
        case "pad" if _is_zero(operands[1]):
            padding = [tuple(map(int, p)) for p in params["padding_config"]]
            axis = _only(a for a, p in enumerate(padding) if p != (0, 0, 0))
            if axis is not None and padding[axis][2] == 0 and min(padding[axis][:2]) >= 0:
                start = padding[axis][0]
                yield Window(made, axis, start, start + given.aval.shape[axis], given, reads=False)
        case _:
            pass


def _only(found: Iterator[int]) -> int | None:
    axes = list(found)
    return axes[0] if len(axes) == 1 else None


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, compat.Literal) and not compat.as_literal_value(operand)


def find_partitions(graph: TracedGraph) -> dict[TracedValue, Partition]:
    """Decides how values are cut. Values that stay whole are not in the result."""
    slices = {n.mesh.slice.number for n in graph.nodes if isinstance(n, Call | ExplicitMove)}
    if len(slices) < 2 or not any(
        e.primitive.name in WINDOWS for n in graph.nodes if isinstance(n, Loose) for e in n.eqns
    ):
        return {}
    return _Finder(graph).partitions()


@dataclass
class _Tied:
    """Axes of values that can only be cut in the same way, and the windows on them."""

    axes: dict[_Axis, None] = field(default_factory=dict[_Axis, None])
    windows: list[Window] = field(default_factory=list[Window])


class _Finder:
    def __init__(self, graph: TracedGraph) -> None:
        self._ends = {*graph.inputs, *graph.outputs}
        self._users: dict[TracedValue, list[tuple[GraphNode, Eqn | None, int, TracedValue | None]]] = defaultdict(list)
        self._makers: dict[TracedValue, tuple[GraphNode, Eqn | None, Sequence[Operand]]] = {}
        self._windows: dict[_Axis, list[Window]] = defaultdict(list)
        self._places: dict[tuple[TracedValue, bool], int | None] = {}
        for node in graph.nodes:
            if isinstance(node, Loose):
                for eqn, operands, outputs in node.equations():
                    self._note(node, eqn, operands, outputs)
            else:
                self._note(node, None, node.inputs, node.outputs)

    def _note(
        self, node: GraphNode, eqn: Eqn | None, operands: Sequence[Operand], outputs: Sequence[TracedValue]
    ) -> None:
        first = outputs[0] if outputs else None
        for number, operand in enumerate(operands):
            if isinstance(operand, TracedValue):
                self._users[operand].append((node, eqn, number, first))
        self._makers.update(dict.fromkeys(outputs, (node, eqn, operands)))
        for window in windows_of(eqn, operands, outputs) if eqn is not None else ():
            self._windows[window.whole, window.axis].append(window)

    def partitions(self) -> dict[TracedValue, Partition]:
        found: dict[TracedValue, Partition] = {}
        seen: set[_Axis] = set()
        for seed in self._windows:
            if seed in seen:
                continue
            tied = self._tied(seed)
            seen.update(tied.axes)
            sizes = self._sizes(tied) if any(value in self._ends for value, _ in tied.axes) else None
            for value, axis in tied.axes if sizes else ():
                found.setdefault(value, Partition(axis, sizes or ()))
        return found

    def _tied(self, seed: _Axis) -> _Tied:
        tied = _Tied({seed: None})
        todo = [seed]
        while todo:
            value, axis = todo.pop()
            tied.windows += self._windows.get((value, axis), ())
            for near in self._near(value, axis):
                if near not in tied.axes:
                    tied.axes[near] = None
                    todo.append(near)
        return tied

    def _near(self, value: TracedValue, axis: int) -> Iterator[_Axis]:
        """Yields the axes that one equation ties to this axis."""
        for _, eqn, number, made in self._users.get(value, ()):
            if eqn is not None and made is not None and (out := followed(eqn, number, axis)) is not None:
                yield made, out
        _, eqn, operands = self._makers.get(value, (None, None, ()))
        cut = None if eqn is None else along(eqn, axis)
        for operand, at in zip(operands, cut or (), strict=False):
            if at is not None and isinstance(operand, TracedValue):
                yield operand, at

    def _sizes(self, tied: _Tied) -> tuple[int, ...] | None:
        """Returns the piece sizes that the windows give; None if they do not cover the axis, or all go to one slice."""
        value, axis = next(iter(tied.axes))
        chain = _chain({w.interval for w in tied.windows}, value.aval.shape[axis])
        if chain is None or len(chain) < 2:
            return None
        places: dict[tuple[int, int], set[int]] = {interval: set() for interval in chain}
        for window in tied.windows:
            if window.interval in places and (place := self._place(window.part, forward=window.reads)) is not None:
                places[window.interval].add(place)
        wanted = {frozenset(found) for found in places.values() if found}
        return tuple(stop - start for start, stop in chain) if len(wanted) > 1 else None

    def _place(self, value: TracedValue, *, forward: bool) -> int | None:
        """Returns the slice of the first call or move that a value goes to or comes from; None if there is none."""
        key = value, forward
        if key not in self._places:
            self._places[key] = self._search(value, forward)
        return self._places[key]

    def _search(self, value: TracedValue, forward: bool) -> int | None:
        todo, seen = [value], {value}
        while todo:
            here = todo.pop(0)
            made = self._makers.get(here)
            nodes = [user[0] for user in self._users.get(here, ())] if forward else [made[0]] if made else []
            for node in nodes:
                if isinstance(node, Call | ExplicitMove):
                    return node.mesh.slice.number
                if isinstance(node, Loose):
                    near = self._beside(here, forward)
                    todo += [v for v in near if v not in seen]
                    seen.update(near)
        return None

    def _beside(self, value: TracedValue, forward: bool) -> list[TracedValue]:
        """Returns the results of the equations that read a value, or the operands of the equation that made it."""
        if forward:
            return [made for *_, made in self._users.get(value, ()) if made is not None]
        operands: Any = self._makers.get(value, (None, None, ()))[2]
        return [o for o in operands if isinstance(o, TracedValue)]


def _chain(intervals: set[tuple[int, int]], length: int) -> list[tuple[int, int]] | None:
    """Selects intervals that cover an axis without overlap, larger ones first; None if there are none."""
    by_start: dict[int, list[int]] = defaultdict(list)
    for start, stop in sorted(intervals):
        if stop > start:
            by_start[start].append(stop)
    chain: list[tuple[int, int]] = []
    dead: set[int] = set()
    at = 0
    while at < length:
        stops = [stop for stop in by_start.get(at, ()) if stop not in dead]
        if stops:
            chain.append((at, stops[-1]))
            at = stops[-1]
        elif chain:
            dead.add(at)
            at, _ = chain.pop()
        else:
            return None
    return chain
