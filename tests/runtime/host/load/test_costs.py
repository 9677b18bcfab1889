"""Tests that costs read back as a host wrote them, and that malformed costs are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.load.costs import IslandCost, Totals, read_costs, write_costs


def test_costs_are_read_as_they_were_written() -> None:
    cost = IslandCost(Totals(float, {"flops": 3.5, "bytes accessed": 1e12}), 77)
    (read,) = read_costs(write_costs({"island0": cost}), "island0").values()
    assert read.totals == cost.totals and read.code == 77 and read.totals["transcendentals"] == 0.0


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000, '{"a": 1}'])
def test_text_that_is_not_a_table_of_costs_is_refused(text: str) -> None:
    refuse(text)


@pytest.mark.parametrize(
    "cost",
    ["3", "[]", "{}", '{"totals": {}}', '{"totals": [], "code": 1}', '{"totals": {}, "code": 1.5}',
     '{"totals": {"flops": "3"}, "code": 1}', '{"totals": {"flops": true}, "code": 1}',
     '{"totals": {}, "code": 1, "more": 2}'],
)  # fmt: skip
def test_malformed_costs_are_refused(cost: str) -> None:
    refuse(f'{{"island0": {cost}}}')


def refuse(text: str) -> None:
    with pytest.raises(PathwaysError) as caught:
        read_costs(text, "island0")
    assert caught.value.code == "PWC0911"


def test_costs_of_two_hosts_add_up_and_code_is_the_most_on_one_device() -> None:
    first = IslandCost(Totals(float, {"flops": 3.0, "bytes accessed": 8.0}), 77)
    second = IslandCost(Totals(float, {"flops": 4.0, "transcendentals": 1.0}), 55)
    both = first.with_part(second)
    assert both is first and both.code == 77
    assert both.totals == {"flops": 7.0, "bytes accessed": 8.0, "transcendentals": 1.0}
    assert second.with_part(first).code == 77


def test_costs_may_be_whole_numbers_and_none() -> None:
    read = read_costs('{"a": {"totals": {"flops": 3}, "code": 0}, "b": {"totals": {}, "code": 5}}', "a")
    assert read["a"].totals == {"flops": 3} and read["b"].totals == {} and [read[n].code for n in "ab"] == [0, 5]
    assert read_costs("{}", "a") == {}


def test_costs_that_xla_does_not_count_are_left_out() -> None:
    def fails() -> dict[str, float]:
        raise RuntimeError("not implemented")

    for count, wanted in (
        (lambda: {"flops": 3, "utilization": 0.5}, {"flops": 3.0}),
        (dict[str, float], {}),
        (fails, {}),
    ):
        executable: Any = SimpleNamespace(cost_analysis=count)
        assert pjrt.costs(executable) == wanted
