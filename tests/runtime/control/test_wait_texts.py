"""Tests the texts that say why a run waits."""

from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.wait_texts import before_it, lacking


def runs(**clients: int) -> list[Request]:
    return [Request(n, c, "step", frozenset("x")) for c, count in clients.items() for n in range(count)]


def test_runs_ahead_are_counted_by_client() -> None:
    assert before_it([]) == ""
    assert before_it(runs(main=1)) == "after 1 run of main"
    assert before_it(runs(main=1, trainer=2)) == "after 2 runs of trainer, 1 of main"
    many = before_it(runs(a=5, b=4, c=3, d=2, e=1))
    assert many == "after 5 runs of a, 4 of b, 3 of c and 2 more clients"


def test_clients_that_hold_memory_are_listed_largest_first() -> None:
    assert lacking("island0", 1 << 20, {}) == "lacks 1.0 MiB on island0"
    said = lacking("island0", 1 << 20, {"a": 1 << 10, "b": 1 << 20, "none": 0})
    assert said == "lacks 1.0 MiB on island0; b holds 1.0 MiB, a holds 1.0 KiB"


def test_up_to_three_clients_are_named() -> None:
    assert before_it(runs(a=3, b=2, c=1)) == "after 3 runs of a, 2 of b, 1 of c"
    said = lacking("island0", 1 << 10, {name: 1 << size for size, name in enumerate("abcd", 10)})
    assert said == "lacks 1.0 KiB on island0; d holds 8.0 KiB, c holds 4.0 KiB, b holds 2.0 KiB"
