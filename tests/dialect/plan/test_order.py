"""Streams stated by hand are merged to one order, and streams that wait for each other are refused."""

from collections.abc import Sequence

import pytest
from support.plans_by_hand import branch, plan, stream

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.inbound_values import InboundValue, bits, inbound_values_of
from pathways.dialect.plan.instructions import Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize


def streams(left: Sequence[Instruction], right: Sequence[Instruction], *more: Sequence[Instruction]) -> Plan:
    islands = ("left", "right", *(f"more{n}" for n in range(len(more))))
    made = (stream(island, (), (), *given) for island, given in zip(islands, (left, right, *more), strict=True))
    return plan(*made)


def run(step: int, *slots: int) -> Run:
    """Makes a run that reads all but the last of some slots, and writes the last one."""
    return Run(step, 0, 0, slots[:-1], slots[-1:], (), "f", None)


def send(step: int, channel: int, slot: int = 0) -> Send:
    return Send(step, channel, slot, "right", None)


def recv(step: int, channel: int, slot: int = 0) -> Recv:
    return Recv(step, channel, slot, "left", None)


def test_the_lower_step_goes_first_and_a_receive_comes_after_its_send() -> None:
    left, right = [run(1, 0), send(4, 0), Free(4, (0,))], [run(0, 1), recv(4, 0), run(5, 2)]
    found = [(at, getattr(what, "step", None), type(what).__name__) for at, what in linearize(streams(left, right))]
    assert found == [(1, 0, "Run"), (0, 1, "Run"), (0, 4, "Send"), (0, 4, "Free"), (1, 4, "Recv"), (1, 5, "Run")]
    early = linearize(streams([run(7, 0), send(8, 0)], [recv(3, 0), run(9, 1)]))
    assert [at for at, _ in early] == [0, 0, 1, 1]


def test_a_branch_comes_when_all_its_streams_have_reached_it() -> None:
    parts = branch(5, "cond"), branch(5, "cond", inputs=(3,))
    found = linearize(streams([parts[0], run(6, 0)], [run(8, 1), parts[1], run(9, 1)]))
    assert found == [(1, run(8, 1)), (0, Joined(((0, parts[0]), (1, parts[1])))), (0, run(6, 0)), (1, run(9, 1))]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            streams([recv(0, 1), send(1, 0)], [recv(0, 0), send(1, 1)]),
            "right waits for channel 0, left waits for channel 1",
        ),
        (
            streams([branch(3, "cond"), branch(5, "cond")], [branch(5, "cond"), branch(3, "cond")]),
            "left waits at step 3, right waits at step 5",
        ),
        (
            streams([branch(5, "cond"), branch(3, "cond")], [branch(3, "cond"), branch(5, "cond")]),
            "right waits at step 3, left waits at step 5",
        ),
        (streams([recv(0, 7)], [recv(0, 7)], [send(1, 7)]), "2 of 3 instructions can be put in order"),
    ],
)
def test_streams_that_cannot_finish_are_refused(given: Plan, problem: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0604") as caught:
        linearize(given, "here.bin")
    assert problem in str(caught.value) and "here.bin" in str(caught.value)


def test_an_answer_comes_behind_what_it_was_made_of() -> None:
    """`right` receives channel 0, sends what it makes of it by channel 2, and receives an answer by channel 3."""
    right: list[Instruction] = [recv(0, 0, 0), run(1, 0, 1), send(2, 2, 1), recv(4, 3, 2)]
    left: list[Instruction] = [send(0, 0, 0), recv(2, 2, 1), run(3, 9, 1, 2), send(4, 3, 2)]
    assert inbound_values_of(streams(left, right), {0, 3}, {2}) == {0: InboundValue(1, 0, 0), 3: InboundValue(2, 1, 1)}
    assert inbound_values_of(streams(left, right), {0, 3}) == {0: InboundValue(1, 0, 0), 3: InboundValue(2, 1, 0)}
    assert inbound_values_of(streams(left, right), {3}, {1, 2}) == {3: InboundValue(1, 0, 2)}
    decides = branch(3, "cond", inputs=(9, 1), outputs=(2,))
    by_branch = streams([*left[:2], decides, left[3]], right)
    assert inbound_values_of(by_branch, {0, 3}, {2}) == {0: InboundValue(1, 0, 0), 3: InboundValue(2, 0, 0)}


def test_values_of_several_origins_are_behind_all_of_them() -> None:
    left = [send(0, 0, 0), send(1, 1, 1), recv(4, 2, 2), send(5, 3, 2)]
    right = [recv(0, 0, 0), recv(1, 1, 1), run(2, 0, 1, 2), send(4, 2, 2), recv(5, 3, 3)]
    found = inbound_values_of(streams([*left], [*right]), {0, 1, 3}, {2})
    assert found == {0: InboundValue(1, 0, 0), 1: InboundValue(2, 0, 0), 3: InboundValue(4, 3, 1)}
    assert bits({9, 2, 5}) == {2: 1, 5: 2, 9: 4}
