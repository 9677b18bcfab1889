"""Computes the host partition of a plan: the instructions that one host executes, and the values that it exchanges with
other hosts. Each host calls it when it loads a plan. The client calls it for the branches that hosts share, and for the
memory of exchanged values. Pure functions.

Each host computes its own partition from the plan alone, so that no two hosts can disagree. Each instruction is in the
partition of exactly one island. The hosts of one island have the same partition, each for its own devices. Between
these hosts, a copy from mesh to mesh becomes a send and a receive, because a rank may need shards of another rank.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pathways.dialect.ahead import AHEAD
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Copy, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Layout, Plan, Stream
from pathways.dialect.plan.order import Joined, Ordered, linearize
from pathways.dialect.ranks import ONE_EACH, RankTable


@dataclass(frozen=True)
class Edge:
    """A value sent from one host to another: a send and its receive. `number` is the same on all hosts.

    For a copy inside an island of several hosts, source and target are both that island.
    """

    number: int
    channel: int
    source: str
    target: str
    type: ArrayType
    here: Layout
    """The layout on the source."""
    there: Layout
    """The layout on the target."""
    may_be_overwritten: bool
    """Whether the source's buffer may be donated before the target has received the value."""


@dataclass(frozen=True)
class PlanPart:
    """The partition of a plan: `plan` has only the streams, inputs, results and constants of the host's islands.

    `order` lists the partition's instructions in the order of the whole plan; its stream indices are those of the
    partition. `inputs` and `results` are the indices of the partition's ports in the whole plan.
    """

    plan: Plan
    order: tuple[Ordered, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    sent: dict[int, Edge]
    """Edges to other hosts, by channel."""
    received: dict[int, Edge]
    """Edges from other hosts, by channel."""
    bodies: tuple["PlanPart", ...]
    """Partitions of the plan's bodies. `plan.bodies` have all ports, but only these islands' streams and constants."""


def part_of(plan: Plan, islands: Collection[str], path: str = "plan", ranks: RankTable = ONE_EACH) -> PlanPart:
    """Computes the partition of the hosts of these islands. Raises PWC0604 as `linearize` does."""
    bodies = tuple(_part(plan.of_body(n), islands, path, ranks) for n in range(len(plan.bodies)))
    own = [
        replace(body, streams=part.plan.streams, constant_buffers=part.plan.constant_buffers)
        for body, part in zip(plan.bodies, bodies, strict=True)
    ]
    whole = _part(plan, islands, path, ranks)
    return replace(whole, plan=replace(whole.plan, bodies=tuple(own)), bodies=bodies)


def _part(plan: Plan, islands: Collection[str], path: str, ranks: RankTable) -> PlanPart:
    """Computes the partition of a plan without its bodies."""
    streams = [i for i, s in enumerate(plan.streams) if s.island in islands]
    number = {old: new for new, old in enumerate(streams)}
    several = {at for at, s in enumerate(plan.streams) if ranks.are_several(s.island)}
    copies = {(c.edge.source, c.copy): c.edge for c in copies_of(plan, ranks)}
    order = tuple(chain.from_iterable(_split(plan, *one, copies) for one in linearize(plan, path)))
    order = tuple(_of_part(order, number, several))
    inputs = tuple(i for i, p in enumerate(plan.inputs) if p.island in islands)
    results = tuple(i for i, p in enumerate(plan.results) if p.island in islands)
    crossing = [e for e in edges_of(plan) if (e.source in islands) != (e.target in islands)]
    crossing += [edge for edge in copies.values() if edge.source in islands]
    return PlanPart(
        replace(
            plan,
            streams=tuple(plan.streams[i] for i in streams),
            inputs=tuple(plan.inputs[i] for i in inputs),
            results=tuple(plan.results[i] for i in results),
            constant_buffers=tuple(c for c in plan.constant_buffers if c.island in islands),
        ),
        order,
        inputs,
        results,
        {e.channel: e for e in crossing if e.source in islands},
        {e.channel: e for e in crossing if e.target in islands},
        (),
    )


def _split(
    plan: Plan, at: int, what: Instruction | Joined, copies: Mapping[tuple[str, Copy], Edge]
) -> Iterator[Ordered]:
    """Yields an instruction unchanged, but a copy inside an island of several hosts as a send and a receive."""
    island = plan.streams[at].island
    edge = copies.get((island, what)) if isinstance(what, Copy) else None
    if not isinstance(what, Copy) or edge is None:
        yield at, what
        return
    yield at, Send(what.step, edge.channel, what.source, island, what.where)
    yield at, Recv(what.step, edge.channel, what.target, island, what.where)


def _of_part(order: Iterable[Ordered], number: Mapping[int, int], several: Collection[int]) -> Iterator[Ordered]:
    """Yields the entries of an order that are on the streams in `number`, which maps old to new stream indices.

    `several` are the streams of islands with several hosts.
    """
    for at, what in order:
        if not isinstance(what, Joined):
            if at in number:
                yield number[at], what
            continue
        parts = tuple((number[stream], branch) for stream, branch in what.parts if stream in number)
        if parts:
            is_shared = len(parts) < len(what.parts) or any(stream in several for stream, _ in what.parts)
            yield parts[0][0], Joined(parts, is_shared=is_shared)


def edges_of(plan: Plan) -> list[Edge]:
    """Lists the values sent between islands, numbered in the order of their channels."""
    sends = {i.channel: (s, i) for s in plan.streams for i in s.instructions if isinstance(i, Send)}
    receives = {i.channel: (s, i) for s in plan.streams for i in s.instructions if isinstance(i, Recv)}
    overwritten = {s.island: _overwritten(plan, s) for s in plan.streams}
    found: list[Edge] = []
    for number, channel in enumerate(sorted(sends)):
        (source, send), (target, receive) = sends[channel], receives[channel]
        here, there = source.kind_of[send.slot], target.kind_of[receive.slot]
        loses = send.slot in overwritten[source.island]
        found.append(Edge(number, channel, source.island, target.island, here.type, here.layout, there.layout, loses))
    return found


@dataclass(frozen=True)
class InnerCopy:
    """A copy inside an island of several hosts, and the edge between these hosts."""

    copy: Copy
    edge: Edge


def copies_of(plan: Plan, ranks: RankTable) -> list[InnerCopy]:
    """Lists the copies inside islands of several hosts, with unused channels; numbers follow those of `edges_of`."""
    sends = [i.channel for s in plan.streams for i in s.instructions if isinstance(i, Send)]
    number, channel = len(sends), max(sends, default=-1) + 1
    found: list[InnerCopy] = []
    for stream in plan.streams if ranks.hosts else ():
        overwritten = _overwritten(plan, stream)
        for copy in (i for i in stream.instructions if isinstance(i, Copy) and ranks.are_several(stream.island)):
            here, there = stream.kind_of[copy.source], stream.kind_of[copy.target]
            ends, loses = (stream.island, stream.island), copy.source in overwritten
            edge = Edge(number, channel, *ends, here.type, here.layout, there.layout, loses)
            found.append(InnerCopy(copy, edge))
            number, channel = number + 1, channel + 1
    return found


def branch_number(body: int, step: int) -> int:
    """Returns the unique number of a branch, from its body (-1: the program itself) and its step in that body."""
    return (body + 1 << 32) + step


def ranks_of_shards(plan: Plan, layout: Layout, ranks: RankTable) -> tuple[int, ...]:
    """Returns the rank that owns each shard of an array, in the order of its mesh."""
    mesh = plan.meshes[layout.mesh]
    return ranks.of_devices(mesh.island, plan.topology.island(mesh.island).size, mesh.devices)


def vote_number(plan: Plan, island: str) -> int:
    """Returns the number for votes of an island's hosts on whether a value has arrived; no branch has this number."""
    return -1 - plan.topology.names.index(island)


def shared_branches(
    plan: Plan, host_of: Callable[[str], str], ranks: RankTable = ONE_EACH
) -> dict[int, tuple[str, frozenset[str]]]:
    """Returns the branches that several hosts execute together, by number: the kind, and these hosts.

    Each island of several hosts adds an entry of kind `vote`: its hosts vote on whether a value has arrived.
    """
    found: dict[int, tuple[str, set[str]]] = {}
    for body, streams in enumerate(plan.all_streams, -1):
        for stream in streams:
            for branch in (i for i in stream.instructions if isinstance(i, Branch)):
                number = branch_number(body, branch.step)
                hosts = ranks.names(stream.island) if ranks.are_several(stream.island) else (host_of(stream.island),)
                found.setdefault(number, (branch.kind, set()))[1].update(hosts)
    for island in (stream.island for stream in plan.streams if ranks.are_several(stream.island)):
        found[vote_number(plan, island)] = "vote", set(ranks.names(island))
    return {number: (kind, frozenset(hosts)) for number, (kind, hosts) in found.items() if len(hosts) > 1}


def bytes_between(
    plan: Plan, prefetch: int, host_of: Callable[[str], str], ranks: RankTable = ONE_EACH
) -> dict[str, int]:
    """Returns, for each island, the bytes a device that values between hosts take in addition to the stream's peak.

    An offered value may stay in memory until the run completes, so its full size counts. Of the inbound values, the
    `prefetch` largest may be in memory as pieces in addition to the assembled ones. In a loop, the iterations that a
    host may be ahead of others (`AHEAD`) count too.
    """
    found = _bytes_between(plan, prefetch, host_of, ranks)
    taken: list[Counter[str]] = []
    for number in range(len(plan.bodies)):  # the branches of a body run only bodies before it
        taken.append(_bytes_of_branches(plan.of_body(number), taken))
        taken[number].update(_bytes_between(plan.of_body(number), prefetch, host_of, ranks))
    found.update(_bytes_of_branches(plan, taken))
    return {stream.island: found[stream.island] for stream in plan.streams}


def _bytes_of_branches(plan: Plan, taken: Sequence[Counter[str]]) -> Counter[str]:
    """Sums the bytes of the bodies of a plan's branches, which may run at the same time; a cond runs one of them."""
    found: Counter[str] = Counter()
    branches = {i.step: i for s in plan.streams for i in s.instructions if isinstance(i, Branch)}
    for branch in branches.values():
        together: Counter[str] = Counter()
        for number in branch.bodies:
            together = together | taken[number] if branch.kind == "cond" else together + taken[number]
        if branch.kind == "while":
            together = Counter({island: (1 + AHEAD) * size for island, size in together.items()})
        found.update(together)
    return found


def _bytes_between(plan: Plan, prefetch: int, host_of: Callable[[str], str], ranks: RankTable) -> Counter[str]:
    found: Counter[str] = Counter()
    pulled: dict[str, list[int]] = {}
    between = [e for e in edges_of(plan) if host_of(e.source) != host_of(e.target)]
    for edge in between + [c.edge for c in copies_of(plan, ranks)]:
        shape = edge.type.shape
        found[edge.source] += edge.type.shard_bytes(plan.sharding(edge.here).shard_shape(shape))
        there = edge.type.shard_bytes(plan.sharding(edge.there).shard_shape(shape))
        pulled.setdefault(edge.target, []).append(there)
    for island, sizes in pulled.items():
        found[island] += sum(sorted(sizes)[-prefetch:])
    return found


def _overwritten(plan: Plan, stream: Stream) -> set[int]:
    """Finds the slots that a computation donates, and those that a later run may donate: of inputs and results."""
    ports = (*plan.inputs, *plan.results)
    found = {p.slot for p in ports if p.island == stream.island}
    for instruction in stream.instructions:
        if isinstance(instruction, Run | Branch):
            found.update(instruction.effects.drops)
    return found
