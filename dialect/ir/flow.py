"""Represents a function of a program: nodes (calls, transfers, control flow) and the values that they read and make.
Nodes and values have numbers. Passes read and change the flow. It becomes ops only for code that asks for them
(`program.py`).

Values are numbered: arguments first, then results in program order, so that the results of a node are a range. A pass
that adds, removes or moves nodes gives the program a new flow (`renumbered`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Protocol, TypeAlias, overload

import numpy as np

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.records import KINDS, CallRecord, ControlFlowRecord, NodeRecord, TransferRecord
from pathways.dialect.memo import map_by_identity
from pathways.dialect.sdy import Placed

Column: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]
"""One integer for each entry of a list."""


class _Argument(Protocol):
    @property
    def sharding(self) -> Placed | None: ...


class Function(Protocol):
    """The owner of a flow: a program, or a body of one."""

    @property
    def arguments(self) -> Sequence[_Argument]: ...
    def link(self) -> None: ...


@dataclass(eq=False, slots=True)
class Node:
    """A call, a transfer or control flow. `callee` is empty except for calls, `mesh` is empty for control flow."""

    number: int
    op: Any
    """A `NodeRecord`."""
    callee: str
    mesh: str
    operands: Sequence[int]
    results: range

    def copy(self) -> "Node":
        """Copies the node and its record."""
        return Node(self.number, self.op.copy(), self.callee, self.mesh, self.operands, self.results)

    @property
    def is_call(self) -> bool:
        return bool(self.callee)

    @property
    def is_transfer(self) -> bool:
        return self.op.op_class is TransferRecord.op_class

    @property
    def is_branch(self) -> bool:
        return self.op.op_class in _BRANCHES


_BRANCHES = frozenset(kind.op_class for kind in KINDS.values() if issubclass(kind, ControlFlowRecord))


class Flow:
    """The nodes and values of a function. `types` are those of all values."""

    def __init__(
        self, function: Function, types: Iterable[ArrayType], nodes: Iterable[Node], returned: Iterable[int]
    ) -> None:
        self._function = function
        self.types = tuple(types)
        self.nodes = tuple(nodes)
        self.returned = tuple(returned)
        self.slots: list[int] | None = None
        """The slot of each value, once `number_slots` has numbered them (places.py)."""
        made = sum(len(node.results) for node in self.nodes)
        self.arguments = range(len(self.types) - made)
        self.makers: list[int] = [-1] * len(self.arguments)
        """For each value, the number of the node that produces it; -1: an argument."""
        for node in self.nodes:
            self.makers += [node.number] * len(node.results)
            node.op.belong_to(function)

    def __len__(self) -> int:
        """Returns the number of calls, transfers and control flow ops."""
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each value."""
        return map_by_identity(lambda type_: type_.bytes, self.types)

    @cached_property
    def places(self) -> list[Placed | None]:
        """Mesh and sharding of each value, from phase `shard` on; None: an argument that nothing uses."""
        places: list[Placed | None] = [a.sharding for a in self._function.arguments]
        for node in self.nodes:
            shardings = node.op.sharding if node.is_transfer else node.op.out_shardings
            if shardings is None or len(shardings) != len(node.results):
                raise InternalError(f"{node.op.OPERATION_NAME} states no sharding for its results")
            places += shardings
        return places

    def place(self, value: int) -> Placed:
        found = self.places[value]
        if found is None:
            raise InternalError("a value that nothing uses has no place")
        return found

    @cached_property
    def operands(self) -> Column:
        """The operands of all nodes, node after node."""
        return _operands(self.nodes)

    @cached_property
    def readers(self) -> Column:
        """The node of each of `operands`."""
        return np.repeat(np.arange(len(self.nodes)), np.diff(self.bounds))

    @cached_property
    def type_ids(self) -> Column:
        """The identity of each value's type. Equal types are the same object, with few exceptions."""
        return identities(self.types)

    @cached_property
    def place_ids(self) -> Column:
        """The identity of each of `places`. Equal places are the same object, with few exceptions."""
        return identities(self.places)

    @cached_property
    def bounds(self) -> list[int]:
        """For each node, the index of its first operand in `operands`; at the end, the length of `operands`."""
        return [0, *np.cumsum([len(node.operands) for node in self.nodes], dtype=np.intp).tolist()]

    def operands_of(self, node: Node) -> Column:
        """Returns the operands of a node."""
        return self.operands[self.bounds[node.number] : self.bounds[node.number + 1]]

    def of_operands(self, column: Column) -> list[bytes]:
        """Returns, for each node, the entries of its operands in a column of all values, to compare them quickly."""
        entries = column[self.operands]
        return [entries[start:end].tobytes() for start, end in pairwise(self.bounds)]

    @cached_property
    def users(self) -> Sequence[list[int]]:
        """For each value, the nodes that read it, in program order; a node that reads it twice is listed twice."""
        readers = self.readers[np.argsort(self.operands, kind="stable")]
        return _Divided(readers, np.bincount(self.operands, minlength=len(self.types)))

    @cached_property
    def waits(self) -> list[tuple[int, ...]]:
        """For each node, the nodes that make its operands, in the order of the operands."""
        made, readers = np.array(self.makers, np.intp)[self.operands], self.readers
        is_new = made >= 0
        is_new[1:] &= (made[1:] != made[:-1]) | (readers[1:] != readers[:-1])
        makers = divided(made[is_new], np.bincount(readers[is_new], minlength=len(self.nodes)))
        return [tuple(dict.fromkeys(each)) for each in makers]

    def reordered(self, order: Sequence[int]) -> "Flow":
        """Returns the flow of the same function with its nodes in this order."""
        nodes = map(self.nodes.__getitem__, order)
        return renumbered(self._function, self.types, self.arguments, nodes, self.returned)

    def refresh(self) -> None:
        """Updates the flow after fields of its nodes, or shardings of arguments, have changed."""
        for node in self.nodes:
            node.callee, node.mesh = _place_of(node.op)
        self.forget_places()
        for cached in ("operands", "bounds", "readers", "users", "waits"):
            self.__dict__.pop(cached, None)
        self.slots = None

    def forget_places(self) -> None:
        """Updates the flow after shardings of arguments have changed."""
        for cached in ("places", "place_ids"):
            self.__dict__.pop(cached, None)

    def calls(self) -> Iterator[Node]:
        return (n for n in self.nodes if n.callee)

    def branches(self) -> Iterator[Node]:
        return (n for n in self.nodes if n.is_branch)


def identities(things: Sequence[object]) -> Column:
    """Returns the identity of each object, to compare many objects at once. It is valid while they live."""
    return np.fromiter(map(id, things), np.intp, len(things))


def divided(column: Column, lengths: Column) -> list[list[int]]:
    """Divides a column into consecutive lists of these lengths."""
    return list(_Divided(column, lengths))


class _Divided(Sequence[list[int]]):
    """A column that is divided into consecutive lists, each made when it is read."""

    def __init__(self, column: Column, lengths: Column) -> None:
        self._entries: list[int] = column.tolist()
        self._bounds: list[int] = [0, *np.cumsum(lengths).tolist()]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __iter__(self) -> Iterator[list[int]]:
        return (self._entries[start:end] for start, end in pairwise(self._bounds))

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return self._entries[self._bounds[at] : self._bounds[at + 1]]


def _operands(nodes: Iterable["Node | Draft"]) -> Column:
    return np.fromiter(chain.from_iterable([node.operands for node in nodes]), np.intp)


def node_of(number: int, op: NodeRecord, operands: Sequence[int], results: range) -> Node:
    """Makes the node of a record."""
    return Node(number, op, *_place_of(op), operands, results)


def _place_of(op: NodeRecord) -> tuple[str, str]:
    """Returns the computation and the mesh of a node, empty if it has none."""
    return op.callee if isinstance(op, CallRecord) else "", "" if isinstance(op, ControlFlowRecord) else op.mesh


@dataclass(eq=False, slots=True)
class Draft:
    """A new node in a rewriting; the numbers of its values are arbitrary."""

    op: NodeRecord
    callee: str
    mesh: str
    operands: Sequence[int]
    results: Sequence[int]


@dataclass
class Rewriting:
    """A pass's changes to the nodes of a function, by node number."""

    instead: dict[int, Draft | None] = field(default_factory=dict[int, Draft | None])
    """The replacement of a node; None: the node was removed or moved."""
    before: dict[int, list[Node | Draft]] = field(default_factory=dict[int, list[Node | Draft]])
    after: dict[int, list[Node | Draft]] = field(default_factory=dict[int, list[Node | Draft]])

    def nodes(self, flow: Flow) -> Iterator[Node | Draft]:
        """Yields the nodes in their order after the changes."""
        for node in flow.nodes:
            yield from self.before.get(node.number, ())
            now = self.instead.get(node.number, node)
            if now is not None:
                yield now
            yield from self.after.get(node.number, ())


def renumbered(
    function: Function,
    types: Sequence[ArrayType],
    arguments: Sequence[int],
    nodes: Iterable[Node | Draft],
    returned: Sequence[int],
) -> Flow:
    """Makes the flow of these nodes in this order.

    The nodes' values are indices into `types`. Entries that no node makes are dropped. Raises ValueError if a node
    takes such a value, or the function returns it.
    """
    nodes = list(nodes)
    old = [*chain(arguments, chain.from_iterable([node.results for node in nodes]))]
    numbers = np.full(len(types), -1)
    numbers[np.array(old, np.intp)] = np.arange(len(old))
    taken = numbers[_operands(nodes)]
    results = numbers[np.array(returned, np.intp)].tolist()
    if -1 in results or -1 in taken:
        raise ValueError("a node takes, or the function returns, a value that no node makes")
    found: list[Node] = []
    start = len(arguments)
    operands = divided(taken, np.array([len(node.operands) for node in nodes], np.intp))
    for at, (node, own) in enumerate(zip(nodes, operands, strict=True)):
        made = range(start, start + len(node.results))
        start = made.stop
        found.append(Node(at, node.op, node.callee, node.mesh, tuple(own), made))
    flow = Flow(function, map(types.__getitem__, old), found, results)
    flow.operands = taken
    return flow
