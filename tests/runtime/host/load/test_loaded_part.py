"""Tests that the hosts of one island notice each difference between the parts of a plan that they loaded."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.plans_by_hand import computation, plan_of, run, streams_of

from pathways.dialect.plan.nouns import Body, Plan
from pathways.dialect.plan.part import part_of
from pathways.runtime.host.load.loaded_part import agreement_digest


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
