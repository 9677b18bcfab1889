"""Which islands may be added and removed, and the names of new ones."""

from itertools import islice

import pytest

from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control.island_rules import new_names, refused_new, refused_removal

PAIR = Topology((Island("island0", devices=1), Island("island1", devices=1)))
AT_START = RankTable({"pod": 2})


@pytest.mark.parametrize(
    ("name", "hosts", "code"),
    [("new", 1, ""), ("x" * 64, 1, ""), ("x" * 65, 1, "PWC0923"), ("island1", 1, "PWC0923"), ("pod", 2, ""),
     ("pod", 1, "PWC0912"), ("new", 2, "PWC0912")],
)  # fmt: skip
def test_an_island_is_added_under_a_free_name_with_the_hosts_that_the_cluster_expects(
    name: str, hosts: int, code: str
) -> None:
    refused = refused_new(PAIR, Island(name, devices=1, hosts=hosts), AT_START)
    assert ("" if refused is None else refused.code) == code


@pytest.mark.parametrize(
    ("count", "name", "said"),
    [(2, "island1", ""), (2, "island2", "there is no island island2"), (1, "island0", "island0 is the last island"),
     (1, "island1", "there is no island island1")],
)  # fmt: skip
def test_the_last_island_is_not_removed(count: int, name: str, said: str) -> None:
    refused = refused_removal(Topology(PAIR.islands[:count]), name)
    assert (refused is None) == (said == "")
    assert refused is None or said in refused.text(refused.title)


def test_new_islands_take_the_first_names_that_are_free() -> None:
    assert list(islice(new_names({"island0", "island2", "pod"}), 3)) == ["island1", "island3", "island4"]
