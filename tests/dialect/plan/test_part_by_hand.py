"""Partitions of plans stated by hand: numbers of edges and branches, and bytes of values between hosts."""

import itertools
from dataclasses import replace

import pytest
from support.plans_by_hand import body, branch, group, kind, plan, port, stream

from pathways.dialect.plan.instructions import Copy, Recv, Run, Send
from pathways.dialect.plan.nouns import Body, ConstantData, Stream
from pathways.dialect.plan.order import Joined
from pathways.dialect.plan.part import (
    branch_number,
    bytes_between,
    copies_of,
    edges_of,
    part_of,
    shared_branches,
    vote_number,
)  # fmt: skip
from pathways.dialect.ranks import RankTable

RANKS = RankTable({"left": 2})
SPLIT, WHOLE = (("x",),), ((),)


def crossing(length: int) -> tuple[Stream, Stream]:
    """Streams that send an array of `length` elements from two devices of `left` to each of `right`."""
    kinds = (kind(0, 2 * length, length, SPLIT),), (kind(2, 4 * length, length, WHOLE),)
    return (
        stream("left", kinds[0], (group("a", 0),), Send(0, 0, 0, "right", None)),
        stream("right", kinds[1], (group("b", 0, birth=0),), Recv(0, 0, 0, "left", None)),
    )


def with_branch(kind: str, *bodies: int) -> tuple[Stream, Stream]:
    return stream("left", (), (), branch(4, kind, *bodies)), stream("right", (), (), branch(4, kind, *bodies))


BODIES: tuple[Body, ...] = (body(*crossing(8)), body(*crossing(32)), body(*with_branch("cond", 0, 1)))


@pytest.mark.parametrize(
    ("kind", "bodies", "lengths"),
    [
        ("cond", (0, 1), 32),
        ("cond", (0,), 8),
        ("while", (0, 1), 2 * (8 + 32)),  # a host may be one turn ahead of another
        ("while", (0, 2), 2 * (8 + 32)),
        ("cond", (2, 0), 32),
    ],
)
def test_values_of_bodies_take_bytes_beside_those_of_the_plan(kind: str, bodies: tuple[int, ...], lengths: int) -> None:
    own = crossing(16)
    streams = [
        replace(s, instructions=(*s.instructions, *b.instructions))
        for s, b in zip(own, with_branch(kind, *bodies), strict=True)
    ]
    found = bytes_between(plan(*streams, bodies=BODIES), 1, str)
    assert found == {"left": 2 * (16 + lengths), "right": 4 * (16 + lengths)}
    assert bytes_between(plan(*streams, bodies=BODIES), 1, lambda _: "one") == {"left": 0, "right": 0}


def test_branches_of_a_plan_may_run_at_a_time() -> None:
    left, right = (stream(island, (), (), branch(4, "cond", 0), branch(5, "while", 1)) for island in ("left", "right"))
    assert bytes_between(plan(left, right, bodies=BODIES), 1, str) == {"left": 2 * (8 + 64), "right": 4 * (8 + 64)}


def test_the_largest_values_are_prefetched() -> None:
    kinds = tuple(kind(2, 4 * n, n, WHOLE) for n in (8, 64, 16))
    sends = [Send(n, n, n, "right", None) for n in range(3)]
    receives = [Recv(n, n, n, "left", None) for n in range(3)]
    left = tuple(kind(0, 2 * n, n, SPLIT) for n in (8, 64, 16))
    found = plan(
        stream("left", left, (group("a", 0, 1, 2),), *sends), stream("right", kinds, (group("b", 0, 1, 2),), *receives)
    )
    assert [bytes_between(found, n, str)["right"] for n in (1, 2, 3, 9)] == [4 * n for n in (64, 80, 88, 88)]
    assert bytes_between(found, 1, str)["left"] == 2 * 88


def test_edges_are_numbered_by_channel_and_copies_behind_them() -> None:
    kinds = (kind(0, 16, 8, SPLIT), kind(1, 32))
    left = stream(
        "left", kinds, (group("a", 0, 0, 1, 1),),
        Send(0, 5, 0, "right", None), Send(1, 2, 1, "right", None), Copy(2, 0, 2, None), Copy(3, 1, 3, None),
    )  # fmt: skip
    right = stream(
        "right", (kind(2, 32),), (group("b", 0, 0),), Recv(0, 5, 0, "left", None), Recv(1, 2, 1, "left", None)
    )
    found = plan(left, right, results=(port("left", 1), port("right", 0)))
    assert [(e.number, e.channel, e.may_be_overwritten) for e in edges_of(found)] == [(0, 2, True), (1, 5, False)]
    assert [(c.edge.number, c.edge.channel) for c in copies_of(found, RANKS)] == [(2, 6), (3, 7)]
    assert [c.edge.may_be_overwritten for c in copies_of(found, RANKS)] == [False, True]
    alone = plan(replace(left, instructions=left.instructions[2:]), replace(right, instructions=()))
    assert [(c.edge.number, c.edge.channel) for c in copies_of(alone, RANKS)] == [(0, 0), (1, 1)]
    part = part_of(found, {"right"}, "plan", RANKS)
    assert set(part.received) == {2, 5} and not part.sent and part.results == (1,)
    assert set(part_of(found, {"left"}, "plan", RANKS).received) == {6, 7}


def test_a_value_that_a_computation_donates_may_be_overwritten() -> None:
    run = Run(1, 0, 0, (1, 0), (2,), (1,), "f", None)
    left = stream("left", (kind(0, 16, 8, SPLIT),), (group("a", 0, 0, 0),), Send(0, 0, 0, "right", None), run)
    right = stream("right", (kind(2, 32),), (group("b", 0),), Recv(0, 0, 0, "left", None))
    assert edges_of(plan(left, right))[0].may_be_overwritten
    kept = plan(replace(left, instructions=(left.instructions[0], replace(run, donated=(0,)))), right)
    assert not edges_of(kept)[0].may_be_overwritten


def test_a_partition_has_the_constants_of_its_islands() -> None:
    held = tuple(ConstantData(island, 0, "c") for island in ("left", "right", "left"))
    found = plan(*crossing(8), constant_buffers=held, inputs=(port("left", 0), port("right", 0)))
    part = part_of(found, {"left"})
    assert part.plan.constant_buffers == held[::2] and part.inputs == (0,)
    assert (set(part.sent), set(part.received)) == ({0}, set())
    assert part_of(found, {"left", "right"}).sent == {}


def test_branches_have_numbers_of_their_own() -> None:
    numbers = [branch_number(b, s) for b, s in itertools.product(range(-1, 4), (0, 1, 2, 3, (1 << 32) - 1))]
    assert len(set(numbers)) == len(numbers) and min(numbers) == 0 and branch_number(-1, 7) == 7
    votes = [vote_number(plan(), island) for island in ("left", "right")]
    assert len(set(votes)) == 2 and max(votes) < 0


def test_branches_of_several_hosts_are_shared() -> None:
    inner = replace(BODIES[0], streams=with_branch("while"))
    found = plan(*with_branch("cond", 0), bodies=(inner,))
    both = frozenset({"left", "right"})
    assert shared_branches(found, str) == {4: ("cond", both), branch_number(0, 4): ("while", both)}
    assert shared_branches(found, lambda _: "one") == {}
    ranks = frozenset({"left/0", "left/1"})
    assert shared_branches(found, str, RANKS) == {
        4: ("cond", ranks | {"right"}), branch_number(0, 4): ("while", ranks | {"right"}),
        vote_number(found, "left"): ("vote", ranks),
    }  # fmt: skip


def test_a_branch_with_parts_on_other_hosts_is_away() -> None:
    found = plan(*with_branch("cond"))
    parts = {
        islands: part_of(found, islands, "plan", ranks).order
        for islands, ranks in (((), RankTable()), (("left", "right"), RankTable()), (("right",), RankTable()))
    }
    (at, whole), (alone, away) = parts["left", "right"][0], parts["right",][0]
    assert parts[()] == () and isinstance(whole, Joined) and isinstance(away, Joined)
    assert (at, len(whole.parts), whole.is_shared) == (0, 2, False) and whole.branch is whole.parts[0][1]
    assert (alone, [stream for stream, _ in away.parts], away.is_shared) == (0, [0], True)
    ((_, of_ranks),) = part_of(found, ("left", "right"), "plan", RANKS).order
    assert isinstance(of_ranks, Joined) and of_ranks.is_shared
