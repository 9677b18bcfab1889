"""Builds the dataflow graph that a picture shows, for each compilation phase of a program: its calls, and the values
that they pass on. Pure functions.

A transfer is not a node but an attribute of its edge: destination, route and bytes of the value.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pathways.compiler.simulate.work import BRANCH, CALL, RESHARD, TRANSFER, PlannedTask, Slot, Work
from pathways.dialect.call_labels import Action, actions_of, read_action
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import unnamed
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.mlir import name_and_place_of
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan

ROUTES = {"": "stays", "local": "resharded on its devices", "ici": "inside the island", "dcn": "between islands"}
"""Text for each transfer route."""


class Box(NamedTuple):
    """A call, or control flow on data (`kind`). `slice` and `island` are its location, "" if not decided yet.

    `bytes` is the size of its results on all devices together, each partition counted once.
    """

    kind: str
    name: str
    slice: str
    island: str
    parts: tuple[Action, ...]
    bytes: int
    where: Where | None
    task: int = -1
    """Number of its task in the plan, at phase `plan`."""


class Arrow(NamedTuple):
    """Values passed from one box to another over the same route; `value` is the type and sharding of the largest.

    `bytes` is the total size of these `many` values. `moves` are the indexes in `Graph.moves` of their transfers. A
    value that several boxes read is moved once.
    """

    source: int
    target: int
    value: str
    bytes: int
    route: str = ""
    reason: str = ""
    many: int = 1
    moves: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The dataflow of a program after a phase."""

    phase: Phase
    boxes: list[Box] = field(default_factory=list[Box])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    moves: list[int] = field(default_factory=list[int])
    """For each transfer, the bytes that change device."""

    def moved(self, arrows: Iterable[Arrow]) -> int:
        """Counts the bytes that change device on some arrows. A transfer that arrows share counts once."""
        return sum(self.moves[move] for move in {move for arrow in arrows for move in arrow.moves})


class _Way(NamedTuple):
    """The origin of a value before its transfers, and the combined route of these transfers."""

    source: int
    route: str = ""
    moves: tuple[int, ...] = ()
    reason: str = ""

    def on(self, route: str, move: int, reason: str) -> "_Way":
        """Adds one more transfer."""
        return _Way(self.source, _wider(self.route, route), (*self.moves, move), self.reason or reason)


def graph_of_program(program: ProgramIR) -> Graph:
    """Builds the dataflow of a dump of any phase before `plan`."""
    graph, arrows = Graph(program.phase), list[Arrow]()
    flow = program.flow
    reader = _Reader(program)
    number: dict[int, int] = {}
    ways: dict[int, _Way] = {}
    shown: Callable[[ArrayType], str] = remembered_by_identity(str)
    for node in flow.nodes:
        if node.is_transfer:
            way = ways.get(node.operands[0], _Way(node.operands[0]))
            ways[node.results[0]] = way.on(node.op.route or "moves", len(graph.moves), node.op.reason or "")
            graph.moves.append(node.op.bytes or 0)
            continue
        number[node.number] = here = len(graph.boxes)
        graph.boxes.append(reader.box(node, sum([flow.sizes[v] for v in node.results])))
        for value in dict.fromkeys(node.operands):
            source, route, moves, reason = ways.get(value) or (value, "", (), "")
            maker = flow.makers[source]
            if maker in number:
                text, size = shown(flow.types[source]), flow.sizes[source]
                arrows.append(Arrow(number[maker], here, text, size, route, reason, 1, moves))
    graph.arrows.extend(_together(arrows))
    return graph


class _Reader:
    """Reads the calls of a program, and caches what many calls share."""

    def __init__(self, program: ProgramIR) -> None:
        self._islands = {symbol: op.island or "" for symbol, op in program.slices.items()}
        self._slices = {mesh: program.slice_of(mesh) for mesh in program.meshes}
        self._actions: dict[str, Action] = {}

    def box(self, node: Node, size: int) -> Box:
        own_name, where = name_and_place_of(node.op)
        name = own_name or unnamed(node.op)
        if not node.is_call:
            return Box(BRANCH, name, "", "", (), size, where)
        parts = tuple([self._action(text) for text in actions_of(node.op.action or "", node.op.parts or ())])
        slice_ = self._slices[node.mesh]
        return Box(CALL, name, slice_, self._islands[slice_], parts, size, where)

    def _action(self, text: str) -> Action:
        if text not in self._actions:
            self._actions[text] = read_action(text)
        return self._actions[text]


_WIDTH = ("", "moves", "local", "ici", "dcn")


def _wider(first: str, second: str) -> str:
    """Returns the wider of two consecutive routes."""
    return max(first, second, key=lambda r: _WIDTH.index(r) if r in _WIDTH else 1)


def graph_of_work(work: Work) -> Graph:
    """Builds the dataflow of a plan from its tasks."""
    graph, arrows = Graph(Phase.PLAN), list[Arrow]()
    plan = work.plan
    number: dict[int, int] = {}
    ways: dict[Slot, tuple[Slot, _Way]] = {}
    """Maps each slot that a transfer fills to the source slot of its value, and the way."""
    for task in work.tasks:
        if task.kind in (TRANSFER, RESHARD):
            source, way = ways.get(task.reads[0], (task.reads[0], _Way(-1)))
            reason = "" if task.decision is None else task.decision.reason
            ways[task.writes[0]] = source, way.on(_route(task), len(graph.moves), reason)
            graph.moves.append(task.bytes)
            continue
        number[task.number] = here = len(graph.boxes)
        graph.boxes.append(_box_of_task(plan, task))
        for slot in dict.fromkeys(task.reads):
            source, way = ways.get(slot, (slot, _Way(-1)))
            if source in work.makers:
                kind = plan.streams[source[0]].kind_of[source[1]]
                text, size, maker = f"{kind.type} {plan.sharding(kind.layout)}", kind.type.bytes, work.makers[source]
                arrows.append(Arrow(number[maker], here, text, size, way.route, way.reason, moves=way.moves))
    graph.arrows.extend(_together(arrows))
    return graph


def _box_of_task(plan: Plan, task: PlannedTask) -> Box:
    mesh = plan.meshes[task.mesh] if task.mesh >= 0 else None
    slice_, island = ("", "") if mesh is None else (mesh.slice, mesh.island)
    size = sum(plan.streams[stream].kind_of[slot].type.bytes for stream, slot in task.writes)
    return Box(task.kind, task.name, slice_, island, task.parts, size, task.where, task.number)


def _route(task: PlannedTask) -> str:
    if task.kind == TRANSFER:
        return "dcn"
    chosen = "" if task.decision is None else task.decision.chosen
    return "local" if chosen.endswith("by local") else "ici"


def _together(arrows: list[Arrow]) -> list[Arrow]:
    """Merges the arrows with the same source, target, route and reason."""
    alike: dict[tuple[int, int, str, str], list[Arrow]] = {}
    for arrow in arrows:
        key = arrow.source, arrow.target, arrow.route, arrow.reason
        if key in alike:
            alike[key].append(arrow)
        else:
            alike[key] = [arrow]
    return [group[0] if len(group) == 1 else _sum(group) for group in alike.values()]


def _sum(arrows: list[Arrow]) -> Arrow:
    largest = max(arrows, key=lambda a: a.bytes)
    moves = tuple(dict.fromkeys(move for a in arrows for move in a.moves))
    return largest._replace(bytes=sum(a.bytes for a in arrows), moves=moves, many=len(arrows))
