"""Tests which computations fail with one of a plan: those that need its results, through any number of steps."""

import pytest
from support.plans_by_hand import cond, copy, plan_of, receive, run, send

from pathways.dialect.plan.instructions import Instruction
from pathways.runtime.host.run.dependents import dependents

F, G, H = run(0, (0,), (1,)), run(1, (1,), (2,)), run(2, (2,), (3,))


def names(*instructions: Instruction, there: tuple[Instruction, ...] = ()) -> list[str]:
    """Names the computations that depend on F."""
    plan = plan_of({"island0": instructions, "island1": there})
    return [found.name for found in dependents(plan, F)]


def test_computations_depend_through_others_in_the_order_of_the_plan() -> None:
    assert names(F, G, H) == ["f1", "f2"]


def test_a_computation_before_does_not_depend() -> None:
    assert [found.name for found in dependents(plan_of({"island0": (F, G, H)}), G)] == ["f2"]


def test_a_computation_that_reads_one_of_several_dependent_slots_depends() -> None:
    assert names(F, run(1, (5, 1), (2,)), run(2, (5, 6), (3,))) == ["f1"]


def test_a_slot_that_another_computation_refills_no_longer_depends() -> None:
    assert names(F, run(1, (0,), (1,)), run(2, (1,), (2,))) == []


def test_a_slot_depends_again_after_a_copy_from_a_dependent_slot() -> None:
    assert names(F, copy(1, 1, 7), run(2, (7,), (3,))) == ["f2"]
    assert names(F, copy(1, 0, 1), run(2, (1,), (3,))) == []


@pytest.mark.parametrize(("slot", "depends"), [(1, True), (0, False)])
def test_a_value_depends_on_another_island_if_what_was_sent_does(slot: int, depends: bool) -> None:
    there = (receive(1, 4, 9), run(2, (9,), (8,)))
    assert names(F, send(1, 4, slot), there=there) == (["f2"] if depends else [])


def test_equal_slots_of_two_islands_are_different_values() -> None:
    assert names(F, there=(run(1, (1,), (2,)),)) == []


def test_a_channel_that_sends_an_independent_value_again_no_longer_depends() -> None:
    there = (receive(1, 4, 9), receive(3, 4, 9), run(4, (9,), (8,)))
    assert names(F, send(1, 4, 1), send(2, 4, 0), there=there) == []


def test_all_results_of_a_branch_depend_on_each_operand() -> None:
    assert names(F, cond(1, (5, 1), (10, 11)), run(2, (11,), (3,))) == ["f2"]
    assert names(F, cond(1, (5, 6), (1, 11)), run(2, (1, 11), (3,))) == []
