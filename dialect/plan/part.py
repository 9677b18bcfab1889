"""The part of a plan that one host executes: the streams of its islands, and what goes to and from others. Pure.

Every host finds its own part, from the plan alone, so that no two can disagree. The parts of all hosts together are
the plan, each instruction in one of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pathways.dialect.ahead import AHEAD
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Recv, Run, Send
from pathways.dialect.plan.nouns import Layout, Plan, Stream
from pathways.dialect.plan.order import Joined, Ordered, linearize


@dataclass(frozen=True)
class Edge:
    """A value that goes from one host to another: a send and its receive. `number` is the same on all hosts."""

    number: int
    channel: int
    source: str
    target: str
    type: ArrayType
    here: Layout
    """Where the source has it."""
    there: Layout
    may_be_overwritten: bool
    """Whether the source's buffer may be donated before the target has taken the value."""


@dataclass(frozen=True)
class PlanPart:
    """The part of a plan: `plan` has the streams, inputs, results and constants of its islands alone.

    `order` is that of the whole plan, of what is here: indices of streams are those of the part. `inputs` and `results`
    are indices of its ports in the whole plan.
    """

    plan: Plan
    order: tuple[Ordered, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    sent: dict[int, Edge]
    """By channel: what goes to other hosts."""
    received: dict[int, Edge]
    bodies: tuple["PlanPart", ...]
    """The parts of the plan's bodies: `plan.bodies` have the streams and constants of these islands, and all ports."""


def part_of(plan: Plan, islands: Collection[str], path: str = "plan") -> PlanPart:
    """Finds the part of the host that has these islands. Raises PWC0604 as `linearize`."""
    bodies = tuple(_part(plan.of_body(n), islands, path) for n in range(len(plan.bodies)))
    own = [
        replace(body, streams=part.plan.streams, constant_buffers=part.plan.constant_buffers)
        for body, part in zip(plan.bodies, bodies, strict=True)
    ]
    whole = _part(plan, islands, path)
    return replace(whole, plan=replace(whole.plan, bodies=tuple(own)), bodies=bodies)


def _part(plan: Plan, islands: Collection[str], path: str) -> PlanPart:
    """The part of a plan without its bodies."""
    streams = [i for i, s in enumerate(plan.streams) if s.island in islands]
    number = {old: new for new, old in enumerate(streams)}
    order = tuple(_of_part(linearize(plan, path), number))
    inputs = tuple(i for i, p in enumerate(plan.inputs) if p.island in islands)
    results = tuple(i for i, p in enumerate(plan.results) if p.island in islands)
    crossing = [e for e in edges_of(plan) if (e.source in islands) != (e.target in islands)]
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


def _of_part(order: Iterable[Ordered], number: Mapping[int, int]) -> Iterator[Ordered]:
    """What of an order is on some streams, which have new numbers there."""
    for at, what in order:
        if not isinstance(what, Joined):
            if at in number:
                yield number[at], what
            continue
        parts = tuple((number[stream], branch) for stream, branch in what.parts if stream in number)
        if parts:
            yield parts[0][0], Joined(parts, away=len(parts) < len(what.parts))


def edges_of(plan: Plan) -> list[Edge]:
    """All values that go between islands, numbered by channel."""
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


def branch_number(body: int, step: int) -> int:
    """The number of a branch in the whole plan: of its body (-1: the program itself), and its step there."""
    return (body + 1 << 32) + step


def shared_branches(plan: Plan, host_of: Callable[[str], str]) -> dict[int, tuple[str, frozenset[str]]]:
    """By number, the branches that several hosts have a part of: their kinds, and those hosts."""
    found: dict[int, tuple[str, set[str]]] = {}
    for body, streams in enumerate(plan.all_streams, -1):
        for stream in streams:
            for branch in (i for i in stream.instructions if isinstance(i, Branch)):
                number = branch_number(body, branch.step)
                found.setdefault(number, (branch.kind, set()))[1].add(host_of(stream.island))
    return {number: (kind, frozenset(hosts)) for number, (kind, hosts) in found.items() if len(hosts) > 1}


def bytes_between(plan: Plan, prefetch: int, host_of: Callable[[str], str]) -> dict[str, int]:
    """Bytes that values between hosts take on a device of each island, beside the peak of its stream.

    What is offered may stay until the run ends: it is counted whole. Of what is asked for, so many values (`prefetch`)
    are there in pieces beside those that were joined. Of a loop, as many turns
    count as a host may be ahead of another.
    """
    found = _bytes_between(plan, prefetch, host_of)
    taken: list[Counter[str]] = []
    for number in range(len(plan.bodies)):  # a body's own branches run bodies before it
        taken.append(_bytes_of_branches(plan.of_body(number), taken))
        taken[number].update(_bytes_between(plan.of_body(number), prefetch, host_of))
    found.update(_bytes_of_branches(plan, taken))
    return {stream.island: found[stream.island] for stream in plan.streams}


def _bytes_of_branches(plan: Plan, taken: Sequence[Counter[str]]) -> Counter[str]:
    """What the bodies of a plan's branches take, which may all run at a time; of a cond, one of them."""
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


def _bytes_between(plan: Plan, prefetch: int, host_of: Callable[[str], str]) -> Counter[str]:
    found: Counter[str] = Counter()
    asked: dict[str, list[int]] = {}
    for edge in edges_of(plan):
        if host_of(edge.source) != host_of(edge.target):
            shape = edge.type.shape
            found[edge.source] += edge.type.shard_bytes(plan.sharding(edge.here).shard_shape(shape))
            there = edge.type.shard_bytes(plan.sharding(edge.there).shard_shape(shape))
            asked.setdefault(edge.target, []).append(there)
    for island, sizes in asked.items():
        found[island] += sum(sorted(sizes)[-prefetch:])
    return found


def _overwritten(plan: Plan, stream: Stream) -> set[int]:
    """The slots that a computation of the plan donates, or that a later run may: those of inputs and results."""
    ports = (*plan.inputs, *plan.results)
    found = {p.slot for p in ports if p.island == stream.island}
    for instruction in stream.instructions:
        if isinstance(instruction, Run | Branch):
            found.update(instruction.effects.drops)
    return found
