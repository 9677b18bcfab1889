"""A body of one launch runs without a frame: its operands go to their places, and a failed launch makes poison."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pathways.runtime.host.run.frame import AtOnce, Start
from pathways.runtime.host.run.single_launch import single_launch

CONSTANT = (4, "constant")


class World:
    """One launch that reads slots 0, 4, 1 and 0, and makes slots 2 and 3."""

    def __init__(self) -> None:
        self.launched: list[tuple[list[Any], int]] = []
        self.kept: list[Any] = []
        self.due = False
        gang: Any = SimpleNamespace(admit=lambda: self.due)
        run: Any = "run"
        at_once = AtOnce(self.start, lambda tokens, made: self.kept.append((tokens, made)))
        launcher: Any = None
        self.step: Any = SimpleNamespace(
            start=Start(self.poison, run, "pod", (0, 4, 1, 0), (2, 3), (), gang, launcher, 0, True), at_once=at_once
        )

    def poison(self, run: Any, island: str, operands: Sequence[Any], error: Exception) -> Any:
        return "poison", island, operands, str(error)

    def start(self, row: Sequence[Any], launch_id: int) -> tuple[Sequence[Any], list[Any]]:
        if "bad" in row:
            raise ValueError("an argument has failed")
        self.launched.append(([*row], launch_id))
        return ["token"], ["two", "three"]


def test_operands_go_to_all_their_places_and_results_come_in_the_order_of_the_body() -> None:
    world = World()
    launch = single_launch([world.step], [CONSTANT], (1, 0, -1), (3, 2, 3))
    assert launch is not None
    for number in range(2):  # a launch leaves nothing to the next one
        operands = ["y", f"x{number}", "not read"]
        assert launch(operands, 70 + number) == (["token"], ["three", "two", "three"])
        assert world.launched[-1] == ([f"x{number}", "constant", "y", f"x{number}"], 70 + number)
    assert world.kept == []
    world.due = True
    launch(["y", "x", None], 72)
    assert world.kept == [(["token"], ["two", "three"])]


def test_a_launch_that_fails_makes_poison_of_its_operands() -> None:
    world = World()
    launch = single_launch([world.step], [CONSTANT], (0, 1), (2, 3))
    assert launch is not None
    tokens, results = launch(["bad", "y"], 70)
    assert not tokens and results == [("poison", "pod", ["bad", "constant", "y", "bad"], "an argument has failed")] * 2


@pytest.mark.parametrize("what", ["two steps", "no launch", "not at once", "an operand is a result"])
def test_other_bodies_have_no_single_launch(what: str) -> None:
    step = World().step
    steps = [step, step] if what == "two steps" else [step]
    if what == "no launch":
        step.start = None
    if what == "not at once":
        step.at_once = None
    results = (2, 0) if what == "an operand is a result" else (2,)
    assert single_launch(steps, [CONSTANT], (0, 1), results) is None
