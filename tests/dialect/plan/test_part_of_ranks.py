"""Ranks of islands with several hosts exchange every piece of a value once. Each copy is a send and a receive."""

from itertools import chain, product

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular

import pathways as pw
from pathways.dialect.plan.instructions import Copy, Instruction, Recv, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined
from pathways.dialect.plan.part import Edge, copies_of, edges_of, part_of, ranks_of_shards, shared_branches
from pathways.dialect.ranks import ONE_EACH, RankTable, pieces_by_pair
from pathways.dialect.reshard import plan_reshard

RANKS = RankTable({"island0": 2, "island1": 4})


@pytest.fixture(scope="module")
def random_plans(thorough: bool) -> list[Plan]:
    values = [np.zeros(SHAPE, np.float32)] * INPUTS
    seeds = range(6 if thorough else 3)
    drawn = [draw(seed)[0] for seed in seeds] + [draw_irregular(seed)[0] for seed in seeds]
    return [pw.program(program).lower(*values).compile("islands=2,devices=8").plan for program in drawn]


def with_bodies(plan: Plan) -> list[Plan]:
    """Returns a plan and the bodies of its branches, each as a plan."""
    return [plan, *(plan.of_body(n) for n in range(len(plan.bodies)))]


def test_ranks_have_names_and_pairs_of_ranks_have_numbers() -> None:
    assert RANKS.names("island0") == ("island0/0", "island0/1") and RANKS.names("pod") == ("pod",)
    assert RANKS.of_devices("island1", 8, range(8)) == (0, 0, 1, 1, 2, 2, 3, 3)
    numbers = [RANKS.pair(edge, s, t) for edge in range(3) for s, t in product(range(4), range(4))]
    assert sorted(numbers) == list(range(3 * 16))
    assert [ONE_EACH.pair(edge, 0, 0) for edge in range(3)] == [0, 1, 2]


def check_pieces(plan: Plan, edge: Edge) -> None:
    """Asserts that pairs of ranks together exchange every piece of an edge once."""
    here, there = plan.sharding(edge.here), plan.sharding(edge.there)
    inside = edge.source == edge.target
    ids = (here.mesh.devices, there.mesh.devices) if inside else (range(8), range(8, 8 + there.mesh.size))
    found = plan_reshard(edge.type.shape, here, there, *ids)
    sources, targets = (ranks_of_shards(plan, layout, RANKS) for layout in (edge.here, edge.there))
    pairs = pieces_by_pair(found.pieces, sources, targets)
    assert sorted(chain(*pairs.values())) == list(range(len(found.pieces)))
    for (source, target), indices in pairs.items():
        assert indices == sorted(indices)  # both ends derive this order of pieces independently
        for piece in (found.pieces[i] for i in indices):
            assert sources[piece.source] == source < RANKS.count(edge.source)
            assert targets[piece.target] == target < RANKS.count(edge.target)


def test_pairs_of_ranks_exchange_every_piece_once(random_plans: list[Plan]) -> None:
    checked = 0
    for plan in chain(*map(with_bodies, random_plans)):
        for edge in [*edges_of(plan), *(c.edge for c in copies_of(plan, RANKS))]:
            check_pieces(plan, edge)
            checked += 1
    assert checked > len(random_plans)


def test_copies_between_ranks_become_sends_and_receives(random_plans: list[Plan]) -> None:
    for plan in chain(*map(with_bodies, random_plans)):
        crossing = [*edges_of(plan), *(c.edge for c in copies_of(plan, RANKS))]
        assert [e.number for e in crossing] == list(range(len(crossing)))
        assert len({e.channel for e in crossing}) == len(crossing)
        for stream in plan.streams:
            alone, part = part_of(plan, {stream.island}), part_of(plan, {stream.island}, "plan", RANKS)
            copies = [i for _, i in alone.order if isinstance(i, Copy)]
            inner = {channel for channel, e in part.sent.items() if e.source == e.target}
            assert len(inner) == len(copies) and inner <= set(part.received)
            own = [(at, i) for at, i in part.order if not (isinstance(i, Send | Recv) and i.channel in inner)]
            assert not any(isinstance(i, Copy) for _, i in own)
            rest = [(at, i) for at, i in alone.order if not isinstance(i, Copy)]
            assert [_plain(*one) for one in own] == [_plain(*one) for one in rest]
            assert all(i.is_shared for _, i in part.order if isinstance(i, Joined))


def _plain(at: int, what: Instruction | Joined) -> object:
    """Returns an instruction, or the parts of a joined branch without its flag `away`."""
    return at, what.parts if isinstance(what, Joined) else what


def test_all_hosts_of_an_island_share_its_branches_and_votes(random_plans: list[Plan]) -> None:
    for plan in random_plans:
        found = shared_branches(plan, str, RANKS)
        votes = {number: hosts for number, (kind, hosts) in found.items() if kind == "vote"}
        islands = [stream.island for stream in plan.streams]
        assert set(votes.values()) == {frozenset(RANKS.names(island)) for island in islands}
        assert all(number < 0 for number in votes)
        for number, (_, hosts) in found.items():
            for island in islands:
                ranks = set(RANKS.names(island))
                assert number < 0 or hosts.isdisjoint(ranks) or ranks <= hosts
        assert set(shared_branches(plan, str)) <= set(found)


def test_a_copy_inside_an_island_is_an_edge_between_its_hosts() -> None:
    mesh = pw.make_virtual_device_set().add_slice(devices=8).mesh("x")
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
    f, g = (jax.jit(lambda x: x + 1, in_shardings=s, out_shardings=s) for s in (rows, columns))
    plan = pw.program(lambda x: g(f(x))).lower(np.zeros((8, 8), np.float32)).compile("islands=1,devices=8").plan
    (copy,) = copies_of(plan, RANKS)
    assert copy.edge.source == copy.edge.target == "island0" and not copies_of(plan, ONE_EACH)
    check_pieces(plan, copy.edge)
