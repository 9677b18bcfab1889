"""Hosts of an island are numbered ranks, each with an equal share of the devices."""

import itertools

import pytest

from pathways.dialect.ranks import ONE_EACH, RankTable, pieces_by_pair, ranks_in
from pathways.dialect.reshard import Piece
from pathways.dialect.topology import Island, Topology

TABLE = RankTable({"pod": 3, "rack": 2})


def test_hosts_of_an_island_are_named_by_rank() -> None:
    assert TABLE.names("pod") == ("pod/0", "pod/1", "pod/2") and TABLE.names("single") == ("single",)
    assert [TABLE.count(n) for n in ("pod", "rack", "single")] == [3, 2, 1]
    assert [TABLE.are_several(n) for n in ("pod", "rack", "single")] == [True, True, False]


def test_devices_are_split_evenly_in_order() -> None:
    assert TABLE.of_devices("rack", 8, (0, 3, 4, 7, 1)) == (0, 0, 1, 1, 0)
    assert TABLE.of_devices("single", 8, (0, 7)) == (0, 0)


def test_a_topology_gives_the_table_of_islands_with_several_hosts() -> None:
    topology = Topology((Island("pod", 4, hosts=3), Island("one", 4), Island("rack", 1, hosts=2)))
    assert ranks_in(topology) == TABLE


@pytest.mark.parametrize("table", [TABLE, ONE_EACH, RankTable({"a": 2})])
def test_no_two_transfers_between_ranks_have_the_same_number(table: RankTable) -> None:
    ranks = range(max(table.hosts.values(), default=1))
    numbers = [table.pair(*found) for found in itertools.product(range(4), ranks, ranks)]
    assert sorted(numbers) == list(range(4 * table.pairs))


def test_pieces_are_grouped_by_the_ranks_of_their_ends() -> None:
    pieces = [Piece(source, target, ((0, 1),)) for source, target in ((0, 0), (1, 0), (2, 1), (0, 1), (3, 1))]
    found = pieces_by_pair(pieces, sources=(0, 0, 1, 1), targets=(1, 0))
    assert found == {(0, 1): [0, 1], (1, 0): [2, 4], (0, 0): [3]}
