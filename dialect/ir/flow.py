"""Represents the dataflow of a program as plain numbers: nodes (calls, transfers, control flow) and the values that
they read and make. Passes read this snapshot, because access to MLIR is 10 times slower. Their changes still go to the
MLIR module; then they renumber or drop the snapshot.

Values are numbered: arguments first, then results in program order, so that the results of a node are a range. A flow
is a snapshot. `ProgramIR.flow` reads it from the IR at first use, and keeps it until `ProgramIR.changed` is called.
That happens after every pass that does not state its changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.mlir import Value
from pathways.dialect.sdy import Placed


class _Argument(Protocol):
    @property
    def sharding(self) -> Placed | None: ...


class Function(Protocol):
    """The source of a flow: a program, or a body of one."""

    @property
    def block(self) -> Any: ...
    @property
    def arguments(self) -> Sequence[_Argument]: ...
    @property
    def returned(self) -> Sequence[Value]: ...


@dataclass(eq=False, slots=True)
class Node:
    """A call, a transfer or control flow. `callee` is empty except for calls, `mesh` is empty for control flow."""

    number: int
    op: Any
    callee: str
    mesh: str
    operands: Sequence[int]
    results: range

    @property
    def is_call(self) -> bool:
        return bool(self.callee)

    @property
    def is_transfer(self) -> bool:
        return isinstance(self.op, pw.TransferOp)


FlowParts: TypeAlias = tuple[list[Value], list[Node], list[int]]
"""The values of a program, its nodes, and the numbers of the values that it returns."""


class Flow:
    """The nodes and values of a program."""

    def __init__(self, function: Function, values: list[Value], nodes: list[Node], returned: list[int]) -> None:
        self._function = function
        self.values = values
        self.nodes = nodes
        self.returned = returned
        self.slots: list[int] | None = None
        """The slot of each value, once `number_slots` has numbered them (places.py)."""
        made = sum(len(node.results) for node in nodes)
        self.arguments = range(len(values) - made)
        self.makers: list[int] = [-1] * len(self.arguments)
        """For each value, the number of the node that produces it; -1: an argument."""
        for node in nodes:
            self.makers += [node.number] * len(node.results)

    def __len__(self) -> int:
        """Returns the number of calls, transfers and control flow ops."""
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @cached_property
    def types(self) -> list[ArrayType]:
        return [from_mlir(v.type) for v in self.values]

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each value."""
        return list(map(remembered_by_identity(lambda type_: type_.bytes), self.types))

    @cached_property
    def places(self) -> list[Placed | None]:
        """Mesh and sharding of each value, from phase `shard` on; None: an argument that nothing uses."""
        places: list[Placed | None] = [a.sharding for a in self._function.arguments]
        for node in self.nodes:
            shardings = node.op.sharding if node.is_transfer else node.op.out_shardings
            if shardings is None or len(shardings) != len(node.results):
                raise InternalError(f"{node.op.operation.name} states no sharding for its results")
            places += shardings
        return places

    def place(self, value: int) -> Placed:
        found = self.places[value]
        if found is None:
            raise InternalError("a value that nothing uses has no place")
        return found

    @cached_property
    def users(self) -> list[list[int]]:
        """For each value, the nodes that read it, in program order; a node that reads it twice is listed twice."""
        users: list[list[int]] = [[] for _ in self.values]
        for node in self.nodes:
            for value in node.operands:
                users[value].append(node.number)
        return users

    def reordered(self, order: Sequence[int]) -> "Flow":
        """Returns the flow of the same program with its nodes in this order."""
        nodes = map(self.nodes.__getitem__, order)
        return renumbered(self._function, self.values, self.types, self.arguments, nodes, self.returned)

    def specialized(self) -> None:
        """Updates the flow after a pass that changed only computations or shardings of calls."""
        for node in self.calls():
            node.callee = node.op.callee
        self.__dict__.pop("places", None)

    def calls(self) -> Iterator[Node]:
        return (n for n in self.nodes if n.callee)

    def branches(self) -> Iterator[Node]:
        return (n for n in self.nodes if isinstance(n.op, pw.ControlFlowOp))


def read_flow(function: Function) -> Flow:
    """Reads the dataflow of a program from its IR."""
    values: list[Value] = list(function.block.arguments)
    nodes: list[Node] = []
    numbers: dict[Value, int] = {v: i for i, v in enumerate(values)}
    for op in function.block.operations:
        if not isinstance(op, (pw.CallOp, pw.TransferOp, pw.ControlFlowOp)):
            continue
        results = list(op.results)
        made = range(len(values), len(values) + len(results))
        numbers.update(zip(results, made, strict=True))
        values += results
        callee = op.callee if isinstance(op, pw.CallOp) else ""
        operands = tuple(map(numbers.__getitem__, op.operands))
        mesh = "" if isinstance(op, pw.ControlFlowOp) else op.mesh
        nodes.append(Node(len(nodes), op, callee, mesh, operands, made))
    return Flow(function, values, nodes, [numbers[v] for v in function.returned])


@dataclass(eq=False, slots=True)
class Draft:
    """A new node in a rewriting; the numbers of its values are arbitrary."""

    op: Any
    callee: str
    mesh: str
    operands: Sequence[int]
    results: Sequence[int]


@dataclass
class Rewriting:
    """A pass's changes to the nodes of a program, by node number, so that their order need not be read from MLIR."""

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
    values: Sequence[Value],
    types: Sequence[ArrayType],
    arguments: Sequence[int],
    nodes: Iterable[Node | Draft],
    returned: Sequence[int],
) -> Flow:
    """Makes the flow of these nodes in this order, without access to MLIR.

    The nodes' values are indices into `values` and `types`. Entries that no node uses any more are dropped.
    """
    old = list(arguments)
    number = [-1] * len(values)
    for at, value in enumerate(arguments):
        number[value] = at
    found: list[Node] = []
    for at, node in enumerate(nodes):
        made = range(len(old), len(old) + len(node.results))
        old += node.results
        for value, new in zip(node.results, made, strict=True):
            number[value] = new
        operands = tuple(map(number.__getitem__, node.operands))
        found.append(Node(at, node.op, node.callee, node.mesh, operands, made))
    flow = Flow(function, [values[v] for v in old], found, [number[v] for v in returned])
    flow.types = [types[v] for v in old]
    return flow
