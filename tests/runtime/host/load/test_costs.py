"""Tests that costs read back as a host wrote them, and that malformed costs are refused."""

import pytest

from pathways.dialect.diagnostics import PathwaysError
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
