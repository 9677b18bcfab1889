"""Tests that the hosts of one island notice each difference between the parts of a plan that they loaded."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.plans_by_hand import computation, plan_of, port, run, streams_of

from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Body, Plan
from pathways.dialect.plan.part import part_of
from pathways.runtime.host.load.loaded_part import agreement_digest, shows_end


def plan() -> Plan:
    return plan_of({"island0": [run(0)], "island1": [run(1)]}, computations=[computation()])


def digest(plan: Plan) -> str:
    return agreement_digest(part_of(plan, ["island0"], "plan"))


def with_other_devices(plan: Plan) -> Plan:
    first, *others = plan.meshes
    return replace(plan, meshes=(replace(first, devices=(1, 0)), *others))


def with_other_memory(plan: Plan) -> Plan:
    first, *others = plan.streams
    return replace(plan, streams=(replace(first, peak_bytes=8), *others))


def with_a_body(plan: Plan) -> Plan:
    return replace(plan, bodies=(Body("body", streams_of({"island0": (), "island1": ()}), (), (), ()),))


def with_other_code(plan: Plan) -> Plan:
    return replace(plan, computations=(computation(module=b"other"),))


def with_another_call(plan: Plan) -> Plan:
    return replace(plan, streams=streams_of({"island0": [run(0), run(2)], "island1": [run(1)]}))


CHANGES = [with_other_devices, with_other_memory, with_a_body, with_other_code, with_another_call]


@pytest.mark.parametrize("change", CHANGES)
def test_hosts_agree_only_when_all_of_their_parts_are_equal(change: Callable[[Plan], Plan]) -> None:
    assert digest(plan()) == digest(plan())
    assert digest(change(plan())) != digest(plan())


@pytest.mark.parametrize(
    ("launches", "results", "shows"),
    [
        ([run(0, outputs=(1,))], [1], True),
        ([run(0, outputs=(1,))], [1, 0], True),  # an argument is returned, too
        ([run(0, outputs=(1,))], [0], False),  # only that
        ([run(0, outputs=(1,)), run(1, outputs=(2,))], [1], False),  # another launch follows
        ([], [0], False),
    ],
)
def test_results_show_the_end_of_a_run_if_its_only_launch_makes_one(
    launches: list[Run], results: list[int], shows: bool
) -> None:
    ports = tuple(port("island0", slot) for slot in results)
    made = replace(plan_of({"island0": launches}, computations=[computation()] * 2), results=ports)
    assert shows_end(part_of(made, ["island0"], "plan")) is shows
