"""The dataflow of a program as numbers: what passes walk, since a touch of MLIR costs 10 times as much.

Values are numbered: arguments first, then results in program order, so that the results of a node are a range. A flow
is a snapshot. `Program.flow` reads one off the IR when it is asked for and keeps it until `Program.changed` is called:
after every pass that does not say what it has changed.
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
    """What a flow is made of: a program, or a body of one."""

    @property
    def block(self) -> Any: ...
    @property
    def arguments(self) -> Sequence[_Argument]: ...
    @property
    def returned(self) -> Sequence[Value]: ...


@dataclass(eq=False, slots=True)
class Node:
    """A call, a transfer or control flow; `callee` is of a call, `mesh` of a call or a transfer, else empty."""

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
    """All nodes and values of a program."""

    def __init__(self, function: Function, values: list[Value], nodes: list[Node], returned: list[int]) -> None:
        self._function = function
        self.values = values
        self.nodes = nodes
        self.returned = returned
        made = sum(len(node.results) for node in nodes)
        self.arguments = range(len(values) - made)
        self.makers: list[int] = [-1] * len(self.arguments)
        """For each value the number of the node that makes it; -1: an argument."""
        for node in nodes:
            self.makers += [node.number] * len(node.results)

    def __len__(self) -> int:
        """How many calls, transfers and branches there are."""
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
        """For each value the nodes that read it, in program order; a node twice that reads it twice."""
        users: list[list[int]] = [[] for _ in self.values]
        for node in self.nodes:
            for value in node.operands:
                users[value].append(node.number)
        return users

    def reordered(self, order: Sequence[int]) -> "Flow":
        """The flow of the same program when its nodes stand in this order."""
        nodes = map(self.nodes.__getitem__, order)
        return renumbered(self._function, self.values, self.types, self.arguments, nodes, self.returned)

    def specialized(self) -> None:
        """To be called when calls have got other computations or shardings, and else nothing has changed."""
        for node in self.calls():
            node.callee = node.op.callee
        self.__dict__.pop("places", None)

    def calls(self) -> Iterator[Node]:
        return (n for n in self.nodes if n.callee)

    def branches(self) -> Iterator[Node]:
        return (n for n in self.nodes if isinstance(n.op, pw.ControlFlowOp))


def read_flow(function: Function) -> Flow:
    """The dataflow of a program as its IR has it."""
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
    """A node of a program that is being rewritten: its values have any numbers."""

    op: Any
    callee: str
    mesh: str
    operands: Sequence[int]
    results: Sequence[int]


@dataclass
class Rewriting:
    """What a pass does to the nodes of a program, each named by its number: MLIR is not asked for their order."""

    instead: dict[int, Draft | None] = field(default_factory=dict[int, Draft | None])
    """What stands in the place of a node; None: nothing, or it stands elsewhere."""
    before: dict[int, list[Node | Draft]] = field(default_factory=dict[int, list[Node | Draft]])
    after: dict[int, list[Node | Draft]] = field(default_factory=dict[int, list[Node | Draft]])

    def nodes(self, flow: Flow) -> Iterator[Node | Draft]:
        """All nodes in their order."""
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
    """The flow of these nodes in this order, without a touch of MLIR.

    Values have any numbers: places in `values` and `types`, of which some may belong to nothing any more.
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
