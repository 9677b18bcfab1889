"""Tests when two islands reconnect whose hosts are running but do not reach each other."""

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.control.health import MAX_MENDED, Partitions
from pathways.runtime.wire import messages as m


def test_missing_values_are_reported_if_all_hosts_of_the_run_are_idle() -> None:
    said = Partitions().found(m.Missing(7, "a", "30"), "b", [31.0, 15.0])
    assert said is not None and (said.code, said.source, said.target) == ("PWC0924", "a", "b")
    assert said.brief == f"{said.text(said.title)}: {said.text(said.have)}" and "30" in said.brief


def test_missing_values_are_not_reported_while_a_host_computes() -> None:
    partitions, message = Partitions(), m.Missing(7, "a", "30")
    assert partitions.found(message, "b", [31.0, 2.0]) is None
    assert partitions.found(message, "b", []) is None
    assert partitions.found(message, "b", [61.0, 32.0]) is not None  # reported once all hosts are idle


def test_two_islands_reconnect_at_most_once_per_run() -> None:
    partitions, message = Partitions(), m.Missing(7, "a", "30")
    assert partitions.found(message, "b", [31.0]) is not None
    assert partitions.found(message, "b", [32.0]) is None
    assert partitions.found(m.Missing(7, "b", "30"), "a", [32.0]) is None  # the other direction is the same pair
    assert partitions.found(message, "c", [32.0]) is not None  # another pair of islands
    for run in range(8, 8 + MAX_MENDED):
        assert partitions.found(m.Missing(run, "a", "30"), "b", [31.0]) is not None
    assert partitions.found(message, "b", [32.0]) is not None  # forgotten after `MAX_MENDED` other runs


def test_both_islands_receive_a_request_to_reconnect() -> None:
    partitions = Partitions()
    cause = partitions.found(m.Missing(7, "a", "30"), "b", [31.0])
    assert cause is not None
    told = partitions.mends(cause)
    assert {name: mend.island for name, mend in told.items()} == {"a": "b", "b": "a"}
    assert {read_diagnostic(mend.cause) for mend in told.values()} == {cause}
    first, second = ({mend.anew for mend in each.values()} for each in (told, partitions.mends(cause)))
    assert len(first) == len(second) == 1 and max(first) < min(second)  # one number for both


def test_pairs_with_one_island_in_common_reconnect_on_their_own() -> None:
    partitions = Partitions()
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("d", "b")]
    found = [partitions.found(m.Missing(7, source, "30"), target, [31.0]) for source, target in pairs]
    assert [(said.source, said.target) for said in found if said is not None] == pairs
