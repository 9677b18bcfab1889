"""Tests which action of a pipeline a fragment is, and which actions are of no pipeline."""

from dataclasses import dataclass
from typing import Any

import pytest

from pathways.compiler.frontends.mpmd.actions import Actions, uncounted
from pathways.dialect.shardy_mpmd import ACTIONS, NO_ACTION


@dataclass(frozen=True)
class Attribute:
    value: Any


def attributes(origin: str = '["f"]', **numbers: int) -> dict[str, Any]:
    return {"origin": origin, **{name: Attribute(number) for name, number in numbers.items()}}


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (attributes(), ("m0_forward", None)),
        (attributes('["f"(1)]'), ("m0_backward", None)),
        (attributes('["f"(0)]'), ("m0_forward", None)),
        (attributes('["f"(0), "g"(2)]'), ("m0_backward", None)),
        (attributes(stage_id=2), ("stage2_fwd", None)),
        (attributes(stage_id=0, call_counter=0), ("stage0_fwd", "0F0")),
        (attributes('["f"(1)]', stage_id=2, call_counter=3), ("stage2_bwd", "2B3")),
        (attributes(call_counter=3), ("m0_forward", None)),
    ],
)
def test_a_fragment_says_its_stage_direction_and_microbatch(given: Any, label: tuple[str, str | None]) -> None:
    assert Actions().of_fragment(given, "m0") == label


def test_a_mesh_is_a_stage_of_fragments_that_count_calls() -> None:
    actions = Actions({"m0": 4})
    assert actions.of_fragment(attributes(call_counter=3), "m0") == ("stage4_fwd", "4F3")
    assert actions.of_fragment(attributes(call_counter=3), "m1") == ("m1_forward", None)
    assert actions.of_fragment(attributes(), "m0") == ("m0_forward", None)
    assert actions.of_fragment(attributes(stage_id=1, call_counter=3), "m0") == ("stage1_fwd", "1F3")


def test_equal_calls_are_of_consecutive_microbatches() -> None:
    actions = Actions()
    labels = [actions.of_callee("p2_stage1_bwd_calls1to3.step") for _ in range(4)]
    assert labels == [("stage1_bwd", "1B1"), ("stage1_bwd", "1B2"), ("stage1_bwd", "1B3"), ("stage1_bwd", None)]
    assert actions.of_callee("stage0_fwd_call7") == ("stage0_fwd", "0F7")
    assert actions.of_callee("stage0_fwd_call7") == ("stage0_fwd", None)
    assert actions.of_callee("p10_stage12_fwd_calls0to1") == ("stage12_fwd", "12F0")


@pytest.mark.parametrize(
    ("callee", "name"),
    [
        ("p1_update.step", "update"),
        ("update", "update"),
        ("p1_p2_update", "p2_update"),
        ("xstage0_fwd_call1", "xstage0_fwd_call1"),
        ("stage0_fwd_call1x", "stage0_fwd_call1x"),
        ("stage0_side_call1", "stage0_side_call1"),
    ],
)
def test_other_functions_are_of_no_stage(callee: str, name: str) -> None:
    assert Actions().of_callee(callee) == (name, None)


def test_an_action_that_is_written_beside_a_call_counts() -> None:
    actions = Actions()

    def label(*said: str) -> tuple[str, str | None]:
        return actions.of_call("stage0_fwd_calls0to8", {ACTIONS: [Attribute(s) for s in said]})

    assert label("3B1") == ("stage0_fwd", "3B1")
    assert label("3B1", "3B2") == ("stage0_fwd", None)
    assert label(NO_ACTION) == ("stage0_fwd", None)
    assert actions.of_call("stage0_fwd_calls0to8", {}) == ("stage0_fwd", "0F3"), "the fourth call"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], None),
        ([("0F0", "a"), ("1F0", "b"), ("1B0", "b"), ("0F1", "a")], None),
        ([("0F0", "a"), ("1F0", "a")], None),
        ([("0F0", "a"), ("zero", "a")], "zero is not an action"),
        ([("0F0", "a"), ("0B0", "b")], "stage 0 is on a and b"),
        ([("0F0", "a"), ("2F0", "b")], "there is no stage 1"),
        ([("1F0", "a")], "there is no stage 0"),
        ([("0F1", "a"), ("0F2", "a")], "there is no microbatch 0"),
        ([("0F0", "a"), ("0F3", "a"), ("0F1", "a")], "there is no microbatch 2"),
        ([("1F1", "a")], "there is no stage 0"),
    ],
)
def test_stages_and_microbatches_are_counted_from_0_each_stage_on_one_mesh(
    said: list[tuple[str, str]], why: str | None
) -> None:
    assert uncounted(said) == why
