"""Tests which figures of machines count as assumed: those that neither the topology nor the caller states."""

from typing import Any

import pytest

from pathways.compiler.machines import ASSUMED_CALL_US, ASSUMED_EFFICIENCY, ASSUMED_FLOPS, ASSUMED_MEMORY_GBPS, Machines
from pathways.dialect.topology import Island, Topology

STATED: Any = {"flops": 1e12, "efficiency": 0.5, "call_us": 5.0, "memory_gbps": 100.0}
FLOPS, EFFICIENCY = f"{ASSUMED_FLOPS:.0e} flop/s a device", f"{ASSUMED_EFFICIENCY:.0%} of the flop/s"
CALL, MEMORY = f"{ASSUMED_CALL_US:g} us a call", f"{ASSUMED_MEMORY_GBPS:g} GB/s of a device's memory"


def machines(*unstated: str, **given: float) -> Machines:
    """Returns an island that states all figures, and one that lacks some of them."""
    less = {name: figure for name, figure in STATED.items() if name not in unstated}
    return Machines(Topology((Island("whole", 1, **STATED), Island("less", 1, **less))), **given)


@pytest.mark.parametrize(
    ("unstated", "given", "assumed"),
    [
        ((), {}, []),
        (("flops",), {}, [FLOPS]),
        (("efficiency",), {}, [EFFICIENCY]),
        (("efficiency",), {"efficiency": 0.25}, []),
        (("flops",), {"efficiency": 0.25}, [FLOPS]),
        (("call_us",), {}, [CALL]),
        (("call_us",), {"call_seconds": 1e-6}, []),
        (("memory_gbps",), {}, [MEMORY]),
        (("memory_gbps",), {"memory_gbps": 50.0}, []),
        (("flops", "efficiency", "call_us", "memory_gbps"), {}, [FLOPS, EFFICIENCY, CALL, MEMORY]),
    ],
)
def test_a_figure_is_assumed_if_neither_an_island_nor_the_caller_states_it(
    unstated: tuple[str, ...], given: dict[str, float], assumed: list[str]
) -> None:
    found = machines(*unstated, **given)
    assert found.assumptions() == found.assumptions(["less"]) == assumed
    assert found.assumed_rates() == [text for text in assumed if text in (FLOPS, EFFICIENCY)]
    assert found.assumptions(["whole"]) == []
