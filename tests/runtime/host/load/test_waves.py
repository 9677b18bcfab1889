"""Tests, on plans written by hand, what is enqueued before and what after a value is known."""

from collections.abc import Container, Sequence

import pytest
from support.plans_by_hand import computation, cond, copy, plan_of, receive, run, send

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.inbound_values import PREFETCH
from pathways.dialect.plan.instructions import Free, Instruction, Run
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.plan.order import Joined, linearize
from pathways.runtime.host.load.launches import kept_as_shards, smallest
from pathways.runtime.host.load.origins import origins_of
from pathways.runtime.host.load.waves import Wave, defer, is_fallible

CALLS_BACK = 1
"""The number of the computation that calls back to the host."""


def planned(*instructions: Instruction) -> Plan:
    computations = [computation(), computation("calls", callbacks=(0,))]
    return plan_of({"island0": instructions, "island1": ()}, computations=computations)


def names(steps: Sequence[tuple[int, Instruction]]) -> list[str]:
    return [one.name if isinstance(one, Run) else f"{one.KIND}{one.step}" for _, one in steps]


def awaited(wave: Wave) -> list[tuple[int, str]]:
    return [
        (n, of.branch.name if isinstance(of, Joined) else of.name if isinstance(of, Run) else f"{of.KIND}{of.step}")
        for n, _, of in wave.awaits
    ]


def waves(
    *instructions: Instruction, received: Container[int] = (), everything: bool = False
) -> list[tuple[int, list[str], list[tuple[int, str]]]]:
    """Returns, for each wave, the bits of what it needs, its steps, and the awaits that begin behind it."""
    plan = planned(*instructions)
    order = [(at, i) for at, i in linearize(plan)] if not received else [(0, i) for i in instructions]
    return [(w.needs, names(w.steps), awaited(w)) for w in defer(plan, order, everything=everything, received=received)]


def test_a_plan_that_awaits_nothing_is_one_wave() -> None:
    assert waves(run(0, (), (0,)), run(1, (0,), (1,)), copy(2, 1, 2)) == [(0, ["f0", "f1", "copy2"], [])]
    assert waves() == [(0, [], [])]


def test_only_a_computation_with_callbacks_may_fail() -> None:
    plan = planned()
    assert is_fallible(plan, run(0, computation=CALLS_BACK)) and not is_fallible(plan, run(0))
    assert not is_fallible(plan, copy(0, 0, 1))


def test_what_reads_a_fallible_result_waits_and_all_else_goes_before_it() -> None:
    found = waves(
        run(0, (), (0,), computation=CALLS_BACK), run(1, (0,), (1,)), run(2, (9,), (2,)), run(3, (2, 1), (3,))
    )
    assert found == [(0, ["f0", "f2"], [(0, "f0")]), (1, ["f1", "f3"], [])]


def test_computations_wait_for_each_fallible_result_that_they_depend_on() -> None:
    found = waves(
        run(0, (), (0,), computation=CALLS_BACK), run(1, (), (1,), computation=CALLS_BACK), run(2, (0,), (2,)),
        run(3, (1,), (3,)), run(4, (2, 3), (4,)),
    )  # fmt: skip
    assert found == [
        (0, ["f0", "f1"], [(0, "f0"), (1, "f1")]), (1, ["f2"], []), (2, ["f3"], []), (3, ["f4"], [])
    ]  # fmt: skip


def test_a_fallible_computation_that_needs_another_begins_behind_it() -> None:
    found = waves(
        run(0, (), (0,), computation=CALLS_BACK), run(1, (0,), (1,), computation=CALLS_BACK), run(2, (1,), ())
    )
    assert found == [(0, ["f0"], [(0, "f0")]), (1, ["f1"], [(1, "f1")]), (3, ["f2"], [])]


@pytest.mark.parametrize(
    ("last", "needs"),
    [(Free(2, (9,)), 1), (run(2, (8,), (9,)), 1), (copy(2, 8, 9), 1), (Free(2, (8,)), 0),
     (run(2, (9,), (7,), donated=(0,)), 1), (run(2, (9,), (7,)), 0)],
)  # fmt: skip
def test_a_slot_is_emptied_and_filled_again_behind_its_readers(last: Instruction, needs: int) -> None:
    """The reader of slot 9 waits for a fallible result."""
    found = waves(run(0, (), (0,), computation=CALLS_BACK), run(1, (0, 9), (1,)), last)
    (name,) = names([(0, last)])
    assert [w[0] for w in found if name in w[1]] == [needs]


def test_a_fallible_result_is_freed_only_when_it_is_known() -> None:
    found = waves(run(0, (), (0,), computation=CALLS_BACK), Free(1, (0,)))
    assert found == [(0, ["f0"], [(0, "f0")]), (1, ["free1"], [])]


def test_an_argument_is_freed_at_once_if_its_readers_wait_for_nothing() -> None:
    found = waves(run(0, (), (0,), computation=CALLS_BACK), run(1, (9,), (1,)), Free(2, (9,)))
    assert found == [(0, ["f0", "f1", "free2"], [(0, "f0")])]


def test_a_fallible_result_that_nothing_reads_is_overwritten_only_when_it_is_known() -> None:
    found = waves(run(0, (), (0,), computation=CALLS_BACK), run(1, (), (0,)), run(2, (0,), (1,)))
    assert found == [(0, ["f0"], [(0, "f0")]), (1, ["f1", "f2"], [])]


def test_an_operand_of_a_fallible_computation_is_freed_at_once() -> None:
    """The computation is enqueued already; devices run in order."""
    found = waves(run(0, (), (9,)), run(1, (9,), (0,), computation=CALLS_BACK), Free(2, (9,)))
    assert found == [(0, ["f0", "f1", "free2"], [(0, "f1")])]


def test_a_branch_is_awaited_and_no_step_and_its_operands_stay_until_it_ends() -> None:
    found = waves(run(0, (), (9,)), cond(1, (9,), (0,)), Free(2, (9,)), run(3, (0,), (1,)), run(4, (8,), (2,)))
    assert found == [(0, ["f0", "f4"], [(0, "cond")]), (1, ["free2", "f3"], [])]


def test_a_received_value_is_awaited_if_another_host_sends_it() -> None:
    arrives, later = receive(0, 4, 0), run(1, (0,), (1,))
    assert waves(arrives, later, received={4}) == [(0, ["recv0"], [(0, "recv0")]), (1, ["f1"], [])]
    assert waves(arrives, later, received={5}) == [(0, ["recv0", "f1"], [])]


def test_values_that_are_asked_for_ahead_come_behind_all_other_work() -> None:
    count = PREFETCH + 2
    instructions: list[Instruction] = []
    for n in range(count):
        instructions += [receive(2 * n, n, n), run(2 * n + 1, (n,), (10 + n,))]
    found = waves(*instructions, received=set(range(count)))
    first = [f"recv{2 * n}" for n in range(PREFETCH)]
    ahead = [(1 << n, [f"recv{2 * (n + PREFETCH)}"], [(n + PREFETCH, f"recv{2 * (n + PREFETCH)}")]) for n in range(2)]
    assert found == [
        (0, first, [(n, name) for n, name in enumerate(first)]),
        (0b1, ["f1"], []), (0b10, ["f3"], []), (0b101, ["f5"], []), (0b1010, ["f7"], []), *ahead,
    ]  # fmt: skip
    plan = planned(*instructions)
    split = defer(plan, [(0, i) for i in instructions], received=set(range(count)))
    assert [w.asks for w in split] == [False] * (1 + count) + [True] * 2


def test_a_copy_inside_of_an_island_is_pulled_behind_its_own_offer() -> None:
    found = waves(
        run(0, (), (0,), computation=CALLS_BACK), run(1, (0,), (1,)), send(2, 4, 1), receive(3, 4, 2), received={4}
    )
    assert (1, ["f1", "send2"], []) in found and found[-1] == (1, ["recv3"], [(1, "recv3")])


def test_what_other_devices_of_the_island_compute_waits_for_earlier_inbound_values_of_its_device() -> None:
    """Run 4 may wait on its device for run 2. Before run 3, it would block it; so it also waits for value 1."""
    forward = [receive(0, 0, 0), run(1, (0,), (1,)), receive(2, 1, 2), run(3, (2,), (3,))]
    backward = [copy(4, 1, 4), run(5, (4,), (5,))]
    assert [w[:2] for w in waves(*forward, *backward, received={0, 1})] == [
        (0, ["recv0", "recv2"]),
        (1, ["f1", "copy4"]),
        (2, ["f3"]),
        (3, ["f5"]),
    ]
    other = [run(6, (1,), (6,)), run(7, (6,), (7,))]
    assert (1, ["f1", "f6", "f7"]) in [w[:2] for w in waves(*forward, *other, received={0, 1})]


def test_sequential_dispatch_waits_for_each_computation() -> None:
    found = waves(run(0, (), (0,)), copy(1, 0, 1), run(2, (9,), (2,)), cond(3, (2,), (3,)), everything=True)
    assert found == [
        (0, ["f0"], [(0, "f0")]), (1, ["copy1", "f2"], [(1, "f2")]), (2, [], [(2, "cond")])
    ]  # fmt: skip
    assert waves(run(0), Free(1, (0,)), everything=True) == [(0, ["f0"], [(0, "f0")]), (1, ["free1"], [])]
    assert waves(everything=True) == [(0, [], [])]
    assert waves(copy(0, 0, 1), everything=True) == [(0, ["copy0"], [])]


def test_sequential_dispatch_waits_for_values_of_other_hosts() -> None:
    instructions = receive(0, 4, 0), receive(1, 5, 1), run(2, (0,), (2,))
    found = waves(*instructions, received={4}, everything=True)
    assert found == [(0, ["recv0"], [(0, "recv0")]), (1, ["recv1", "f2"], [(1, "f2")])]


def port(island: str, slot: int) -> Port:
    return Port("y", ArrayType((), "float32"), "float32", False, island, slot)


def test_slots_that_others_read_are_no_lists_of_shards() -> None:
    """Computation 0 is started device by device, computation 1 is not, since it needs its gang at once."""
    apart, gang = computation("apart", local=b"local"), computation("gang")
    plan = plan_of(
        {
            "island0": (
                run(0, (), (0, 1, 2, 3, 4)), run(1, (0,), ()), run(2, (1,), (8,), computation=1), copy(3, 2, 9),
                Free(4, (0, 1, 2)),
            ),
            "island1": (run(5, (), (3, 4)),),
        },
        computations=[apart, gang],
        results=[port("island0", 3), port("island1", 4)],
    )  # fmt: skip
    assert kept_as_shards(plan) == {(0, 0), (0, 4), (1, 3)}


def test_each_result_names_the_computation_that_makes_it() -> None:
    plan = plan_of(
        {
            "island0": (run(0, (), (0,), name="f"), cond(1, (0,), (1,), "choose")),
            "island1": (run(2, (), (0,), name="g"),),
        },
        results=[port("island1", 0), port("island0", 1), port("island0", 0), port("island0", 7)],
    )
    assert origins_of(plan) == [
        ("g", "island1", None), ("choose", "island0", None), ("f", "island0", None), ("the program", "island0", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "number"),
    [((), None), ((1 << 14,), 0), (((1 << 14) + 1,), None), ((9, 4, 4), 1), ((1 << 20, 1 << 14), 1), ((0, 1), 0)],
)
def test_the_smallest_result_is_kept_if_it_has_at_most_64_kib(sizes: tuple[int, ...], number: int | None) -> None:
    assert smallest([ArrayType((size,), "float32") for size in sizes]) == number
