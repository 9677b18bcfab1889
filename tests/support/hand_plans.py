"""Plans written by hand, without buffers or modules: for tests of what only reads their instructions."""

from collections.abc import Mapping, Sequence
from typing import Any

from pathways.dialect.diagnostics import Where
from pathways.dialect.plan.instructions import Branch, Copy, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Body, Computation, Plan, PlanMesh, Port, Stream
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import Tree

NOTHING = Tree("tuple")


def run(
    step: int, inputs: Sequence[int] = (), outputs: Sequence[int] = (), *, name: str = "", computation: int = 0,
    mesh: int = 0, donated: Sequence[int] = (), where: Where | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Makes a call of a computation, named after its step where no name is given."""
    slots = tuple(inputs), tuple(outputs), tuple(donated)
    return Run(step, computation, mesh, *slots, name or f"f{step}", where, **more)


def send(step: int, channel: int, slot: int, to: str = "island1") -> Send:
    return Send(step, channel, slot, to, None)


def receive(step: int, channel: int, slot: int, source: str = "island0") -> Recv:
    return Recv(step, channel, slot, source, None)


def copy(step: int, source: int, target: int) -> Copy:
    return Copy(step, source, target, None)


def cond(step: int, inputs: Sequence[int], outputs: Sequence[int], name: str = "cond") -> Branch:
    """Makes a branch whose operands and results are all on one island."""
    taken, made = tuple(range(len(inputs))), tuple(range(len(outputs)))
    return Branch(step, "cond", (), tuple(inputs), taken, tuple(outputs), made, (0,), name, None)


def streams_of(streams: Mapping[str, Sequence[Instruction]]) -> tuple[Stream, ...]:
    return tuple(Stream(island, 0, (), (), tuple(instructions)) for island, instructions in streams.items())


def computation(name: str = "f", **more: Any) -> Computation:
    """Makes a computation without operands and results, unless the test gives some."""
    given: dict[str, Any] = {"donated": (), "inputs": (), "in_layouts": (), "outputs": (), "out_layouts": ()}
    given |= {"axes": (("x", 2),)}
    return Computation(name, b"", **(given | more))


def plan_of(
    streams: Mapping[str, Sequence[Instruction]], bodies: Sequence[Mapping[str, Sequence[Instruction]]] = (),
    computations: Sequence[Computation] = (), results: Sequence[Port] = (), devices: int = 2,
) -> Plan:  # fmt: skip
    """Makes a plan; mesh n is all devices of the nth island."""
    topology = Topology(tuple(Island(name, devices=devices) for name in streams))
    everything = tuple(range(devices))
    meshes = tuple(PlanMesh(f"m{n}", f"s{n}", name, (("x", devices),), everything) for n, name in enumerate(streams))
    return Plan(
        "program", "cpu", topology, (), meshes, tuple(computations) or (computation(),), streams_of(streams), (),
        tuple(results), (), NOTHING, NOTHING,
        bodies=tuple(Body(f"body{n}", streams_of(body), (), (), ()) for n, body in enumerate(bodies)),
    )  # fmt: skip
