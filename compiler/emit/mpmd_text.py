"""Writes a compiled program as text of Shardy's MPMD dialect, in the form that Shardy's own partitioner produces.
`ifrt.py` calls it for `pwc compile --emit`. Its input is IR of phase `schedule`, in which everything has an order.

Calls become `mpmd.fragment_call`s in the order of the program, and moves become `mpmd.transfer`s. Values are
`!mpmd.mesh_tensor`s with closed shardings. Unused arguments are left out, as Shardy does. A constant is a call without
operands, before its first use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pathways.compiler.computations.signature import signature_of
from pathways.compiler.emit.donation import dead_operands, pair_with_results
from pathways.compiler.emit.fragments import Symbols, constant_text, fragment_name, function_texts
from pathways.compiler.emit.meshes import NamedMesh, name_meshes
from pathways.compiler.emit.refusals import check_sayable
from pathways.compiler.emit.spelling import axes_text, list_text, quoted, symbol, value_text
from pathways.dialect.call_labels import Action, read_action, read_part
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import replicated, size_of_axes
from pathways.dialect.shardy_mpmd import ACTIONS, NO_ACTION


def mpmd_text(program: ProgramIR, constants: Mapping[str, bytes]) -> str:
    """Writes the module. `constants` are the bytes of the arrays outside the IR. Raises PWC0127, PWC0703."""
    check_sayable(program)
    return _Module(program, constants).text()


class _Module:
    """The text written so far. `symbols` and `functions` grow with the body of @main."""

    def __init__(self, program: ProgramIR, constants: Mapping[str, bytes]) -> None:
        self.program = program
        self.flow = program.flow
        self.constants = constants
        self.arguments = program.arguments
        self.places = self._places()
        placed = (p.mesh for p in self.places if p is not None)
        self.meshes = name_meshes(program, [*placed, *(n.mesh for n in self.flow.calls())])
        self.symbols = Symbols()
        for home in self.meshes.all:
            self.symbols.axes(home.axes)
        self.functions: list[str] = []
        self.known: dict[object, str] = {}
        """Names of written functions, by their content."""
        self.names: dict[int, str] = {}
        """Names of values in @main."""
        self.calls = self._calls_by_function()
        self.dead = dead_operands(self.flow, self.arguments)

    def _places(self) -> list[Placed | None]:
        """Returns the placement of each value. A returned value without a mesh is put on the first mesh."""
        places = list(self.flow.places)
        first = next((p.mesh for p in places if p is not None), None)
        for value in self.flow.returned:
            if places[value] is None and first is not None:
                places[value] = Placed(first, replicated(len(self.flow.types[value].shape)))
        return places

    def _calls_by_function(self) -> dict[tuple[str, NamedMesh], list[Node]]:
        """Groups calls by function: one computation on meshes with the same axes."""
        found: dict[tuple[str, NamedMesh], list[Node]] = {}
        for node in self.flow.calls():
            found.setdefault(self._function_of(node), []).append(node)
        return found

    def _function_of(self, node: Node) -> tuple[str, NamedMesh]:
        return node.callee, NamedMesh("", self.meshes.home(node.mesh).axes)

    def text(self) -> str:
        arguments = [self._argument(v, a) for v, a in enumerate(self.arguments) if self._is_taken(v, a)]
        body = [line for node in self.flow.nodes for line in self._node(node)]
        body += self._constants(self.flow.returned)
        names = ", ".join(self.names[v] for v in self.flow.returned)
        types = ", ".join(self._type(v) for v in self.flow.returned)
        results = (
            f"{self._type(v)} {{jax.result_info = {quoted(r.name)}}}"
            for v, r in zip(self.flow.returned, self.program.results, strict=True)
        )
        topology = ", ".join(f"<{quoted(home.name)} : {axes_text(home.axes)}>" for home in self.meshes.all)
        head = (
            f"func.func public @main({', '.join(arguments)}) -> ({', '.join(results)}) "
            f"attributes {{topology = #mpmd.topology<{topology}>}} {{"
        )
        partitions = max(size_of_axes(home.axes) for home in self.meshes.all)
        lines = [
            f"module {symbol(self.program.name)} "
            f"attributes {{mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = 1 : i32}} {{",
            *(f"sdy.mesh {symbol(name)} = {text} loc(unknown)" for text, name in self.symbols.meshes.items()),
            head,
            *body,
            f"return {names} : {types} loc(unknown)" if names else "return loc(unknown)",
            "} loc(unknown)",
            *self.functions,
            "} loc(unknown)",
        ]
        return "\n".join(lines)

    def _is_taken(self, value: int, argument: Argument) -> bool:
        return not argument.is_constant and self.places[value] is not None

    def _argument(self, value: int, argument: Argument) -> str:
        self.names[value] = f"%a{value}"
        size = self.flow.types[value].shape
        piece = argument.piece
        name = argument.shown(value) if piece is None else piece.named(size[piece.axis])
        given_up = argument.donate and value not in self.flow.returned
        donated = " {jax.buffer_donor = true}" if given_up else ""
        return f"%a{value}: {self._type(value)}{donated} loc({quoted(name)})"

    def _type(self, value: int, placed: Placed | None = None) -> str:
        place = placed or self.places[value] or self.flow.place(value)
        home = self.meshes.home(place.mesh)
        return value_text(self.flow.types[value], home.name, self.symbols.axes(home.axes), self.meshes.dims(place))

    def _node(self, node: Node) -> Iterator[str]:
        yield from self._constants(node.operands)
        for value in node.results:
            self.names[value] = f"%v{value}"
        yield self._transfer(node) if node.is_transfer else self._call(node)

    def _transfer(self, node: Node) -> str:
        (source,), (result,) = node.operands, node.results
        line = f"{self.names[result]} = mpmd.transfer {self.names[source]} : "
        return f"{line}({self._type(source)}) -> {self._type(result)} {node.op.location}"

    def _call(self, node: Node) -> str:
        operands = ", ".join(self.names[v] for v in node.operands)
        takes = (self._type(v, p) for v, p in zip(node.operands, node.op.in_shardings, strict=True))
        made = "".join((", ".join(self.names[v] for v in node.results), " = ")) if node.results else ""
        line = (
            f"{made}mpmd.fragment_call<mesh={quoted(self.meshes.home(node.mesh).name)}, origin=[{_origin(node)}]> "
            f"{symbol(self._function(node))}({operands}){_labels(node)}"
        )
        results = list_text([self._type(v) for v in node.results])
        return f"{line} : ({', '.join(takes)}) -> {results} {node.op.location}"

    def _function(self, node: Node) -> str:
        key = self._function_of(node)
        if key not in self.known:
            calls = self.calls[key]
            actions = [_action(n.op.action) for n in calls]
            name = self.symbols.new(fragment_name(len(self.known), node.callee, actions, self.program.name))
            computation = self.program.computations[node.callee]
            dead = self.dead[calls[0].number].intersection(*(self.dead[n.number] for n in calls))
            donated = pair_with_results(dead, signature_of(computation))
            self.functions += function_texts(computation, name, key[1], donated, self.symbols)
            self.known[key] = name
        return self.known[key]

    def _constants(self, values: Iterable[int]) -> Iterator[str]:
        """Writes those constants among `values` that are read for the first time."""
        for value in dict.fromkeys(values):
            if value not in self.names:
                self.names[value] = f"%v{value}"
                yield self._constant(value)

    def _constant(self, value: int) -> str:
        argument, type_ = self.arguments[value], self.flow.types[value]
        place = self.places[value] or self.flow.place(value)
        home, dims = self.meshes.home(place.mesh), self.meshes.dims(place)
        raw = self.constants[argument.constant] if argument.constant else bytes.fromhex(argument.value or "")
        key = raw, type_, home.axes, dims
        if key not in self.known:
            self.known[key] = name = self.symbols.new(f"p{len(self.known)}_constant.{self.program.name}")
            self.functions.append(constant_text(type_, raw, name, home, self.symbols.axes(home.axes), dims))
        return (
            f"{self.names[value]} = mpmd.fragment_call<mesh={quoted(home.name)}, origin=[]> "
            f"{symbol(self.known[key])}() : () -> {self._type(value)} loc({quoted(argument.shown(value))})"
        )


def _parts(node: Node) -> list[tuple[Action | None, str]]:
    """Returns the action and name of each computation in a call, as the user knows them."""
    if node.op.parts is None:
        return [(_action(node.op.action), name_of(node.op) or node.callee)]
    parts = map(read_part, node.op.parts)
    return [(_action(part.action), part.name) for part in parts]


def _origin(node: Node) -> str:
    """Lists the computations of a call. Backward computations get the suffix (1), Shardy's count of transposes."""
    return ", ".join(
        quoted(name) + ("(1)" if action is not None and action.kind != "F" else "") for action, name in _parts(node)
    )


def _labels(node: Node) -> str:
    """Writes the pipeline actions of a call, or of each of its parts."""
    actions: Sequence[str] = [NO_ACTION if action is None else str(action) for action, _ in _parts(node)]
    if all(action == NO_ACTION for action in actions):
        return ""
    return f" {{{ACTIONS} = [{', '.join(map(quoted, actions))}]}}"


def _action(written: str | None) -> Action | None:
    return read_action(written) if written else None
