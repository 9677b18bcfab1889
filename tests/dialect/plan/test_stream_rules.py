"""A plan stated by hand breaks one rule of places, buffers, ports or instructions at a time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.plans_by_hand import group, kind, plan, port, stream

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.check import At, Problem, buffer_problems, stream_problems
from pathways.dialect.plan.check_channels import channel_problems
from pathways.dialect.plan.instructions import Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Computation, ConstantData, Plan, PlanMesh, PlanSlice

F8, SPLIT = ArrayType((8,), "float32"), (("x",),)
KINDS = (kind(0, 16, dims=SPLIT), kind(0, 32), replace(kind(0, 2), type=ArrayType((2,), "bool")))
GROUPS = (group("x", 0, 0), group("y", 0, 1), group("flags", 2))
"""Slots 0 to 2 hold arrays that are split, slot 3 one that is not, slot 4 booleans."""
DOUBLE = Computation("double", b"", (0,), (F8,), (SPLIT,), (F8,), (SPLIT,), (("x", 2),))
RUN = Run(1, 0, 0, (0,), (2,), (0,), "", None)
SLICES = (PlanSlice("s0", "left", (0, 1, 2), "r"), PlanSlice("s2", "right", (3, 2, 1, 0), "r"))
MESHES = (
    PlanMesh("m0", "s0", "left", (("x", 2),), (0, 1)),
    PlanMesh("m1", "s0", "left", (("y", 1), ("x", 2)), (2, 1)),
    PlanMesh("m2", "s2", "right", (("x", 2),), (0, 1)),
)


def with_steps(*steps: Instruction, **fields: Any) -> Plan:
    made = plan(stream("left", KINDS, GROUPS, *steps), computations=(DOUBLE,), meshes=MESHES, slices=SLICES)
    return replace(made, **({"inputs": (port("left", 0, donated=True), port("left", 1))} | fields))


def steps(*instructions: Instruction, **fields: Any) -> list[tuple[str, str]]:
    return [(p.what, p.rule) for p in stream_problems(with_steps(*instructions, **fields))]


ONCE = "positions in its inputs, each at most once"
BROKEN: list[tuple[Instruction, str, str]] = [
    (replace(RUN, donated=(0, 0)), "donates (0, 0) of 1 inputs", ONCE),
    (replace(RUN, donated=(1,)), "donates (1,) of 1 inputs", ONCE),
    (replace(RUN, donated=(-1,)), "donates (-1,) of 1 inputs", ONCE),
    (replace(RUN, inputs=(3,)), "reads slot 3, which is empty", "buffers that are written before and not freed"),
    (replace(RUN, outputs=(5,)), "names slots [5] of 5", "slots that exist: 0 to 4"),
    (replace(RUN, outputs=(-1,)), "names slots [-1] of 5", "slots that exist: 0 to 4"),
    (Copy(1, 0, 1, None), "writes [1]", "slots that were never written"),
    (Free(1, (0, 0)), "drops slots (0, 0)", "each slot once"),
    (Copy(1, 0, 4, None), "copies float32[8] to bool[2]", "equal types"),
    (replace(RUN, computation=1), "runs computation 1 on mesh 0", "a computation and a mesh of the plan"),
    (replace(RUN, computation=-1), "runs computation -1 on mesh 0", "a computation and a mesh of the plan"),
    (replace(RUN, mesh=3), "runs computation 0 on mesh 3", "a computation and a mesh of the plan"),
    (replace(RUN, mesh=-1), "runs computation 0 on mesh -1", "a computation and a mesh of the plan"),
    (replace(RUN, donated=()), "(double) donates ()", "(0,), as the computation was compiled"),
    (replace(RUN, temporaries=-1, name="f"), "(f) needs -1 bytes", "bytes from 0"),
    (replace(RUN, inputs=(1,)), "(double) donates slot 1", "a slot used once, and not the caller's"),
    (replace(RUN, inputs=(0, 1)), "(double) has 2 inputs", "1"),
    (replace(RUN, outputs=()), "(double) has 0 outputs", "1"),
    (replace(RUN, outputs=(3,)), f"(double) output 0 is float32[8] as {KINDS[1].layout}", f"{F8} as {SPLIT} on mesh 0"),
    (replace(RUN, outputs=(4,)), f"(double) output 0 is bool[2] as {KINDS[2].layout}", f"{F8} as {SPLIT} on mesh 0"),
]


@pytest.mark.parametrize(("step", "what", "rule"), BROKEN)
def test_an_instruction_that_breaks_a_rule_is_described(step: Instruction, what: str, rule: str) -> None:
    (found,) = stream_problems(with_steps(Free(0, ()), step))
    assert found == Problem("step 1 of left", what, rule, At(-1, "left", 1))


def test_instructions_within_the_rules_have_no_problem() -> None:
    assert steps(RUN, Free(2, (2,))) == [] == steps(replace(RUN, temporaries=0, parts=("- add",)))
    assert steps(Copy(0, 0, 3, None), RUN, results=(port("left", 2), port("left", 3))) == []
    assert steps(RUN, Free(2, (0,)))[0][0] == "reads slot 0, which is empty"
    assert steps(Free(0, (1,)), Free(1, (1,)))[0][0] == "reads slot 1, which is empty"


def test_a_run_has_the_axes_of_its_computation_on_its_island() -> None:
    (on_others, *_) = steps(replace(RUN, mesh=1))
    assert on_others == ("(double) runs on (('y', 1), ('x', 2)) of left", "(('x', 2),) on left")
    (elsewhere, *_) = steps(replace(RUN, mesh=2))
    assert elsewhere == ("(double) runs on (('x', 2),) of right", "(('x', 2),) on left")
    twice = replace(DOUBLE, donated=(1,), inputs=(F8, F8), in_layouts=(SPLIT, SPLIT))
    used = replace(RUN, inputs=(0, 0), donated=(1,))
    assert steps(used, computations=(twice,)) == [("(double) donates slot 0", "a slot used once, and not the caller's")]
    (bad,) = steps(replace(RUN, parts=("- add", "bad")))
    assert bad[0].startswith("(double): 'bad' is not like") and bad[1].startswith("parts of the form")


def test_results_and_constants_stay() -> None:
    stays = "constants and results that are kept"
    assert steps(Free(0, (0,)), results=(port("left", 0),))[0] == ("drops slots [0]", stays)
    held = (ConstantData("left", 4, "c"),)
    assert steps(Free(0, (4,)), constant_buffers=held) == [("drops slots [4]", stays)]
    gone = ("results in slots [2, 3] of left that are empty", "results that are written")
    assert steps(results=(port("left", 3), port("left", 2), port("left", 0))) == [gone]


def test_buffers_have_kinds_deaths_and_the_bytes_of_their_shards() -> None:
    def buffers(fields: dict[str, Any]) -> list[tuple[str, str]]:
        base = with_steps()
        return list(buffer_problems(replace(base, streams=(replace(base.streams[0], **fields),))))

    assert buffers({}) == []
    for group_, have in (
        (replace(GROUPS[2], deaths=()), "buffers flags of left of kinds (2,), 0 deaths"),
        (group("z", 3), "buffers z of left of kinds (3,), 1 deaths"),
        (group("z", -1), "buffers z of left of kinds (-1,), 1 deaths"),
    ):
        assert buffers({"groups": (group_,)}) == [(have, "kinds 0 to 2, one death per buffer")]
    assert buffers({"groups": (group("z", 0, birth=-2),)}) == [("buffers z of left from step -2", "steps, or -1")]
    early = replace(group("z", 0), deaths=(-2,))
    assert buffers({"groups": (early,)}) == [("buffers z of left from step -1", "steps, or -1")]
    assert buffers({"groups": (replace(early, kinds=(), deaths=()),)}) == []
    assert buffers({"peak_bytes": -1}) == [("a peak of -1 bytes on left", "bytes from 0")]
    for kind_, have in (
        (replace(KINDS[0], bytes=32), "kind 0 of the buffers of left of 32 bytes a device"),
        (kind(2, 32), "kind 0 of the buffers of left on mesh 2"),
        (kind(3, 32), "kind 0 of the buffers of left on mesh 3"),
        (kind(-1, 32), "kind 0 of the buffers of left on mesh -1"),
        (kind(0, 14, 7, SPLIT), "kind 0 of the buffers of left of float32[7] split as (x)"),
    ):
        ((what, _),) = buffers({"kinds": (kind_,), "groups": ()})
        assert what == have


def test_channels_have_two_ends_that_name_each_other() -> None:
    def channels(left: Sequence[Instruction], right: Sequence[Instruction]) -> list[tuple[str, str]]:
        there = stream("right", (kind(2, 32), replace(KINDS[2])), (group("r", 0, 1),), *right)
        return list(channel_problems(plan(stream("left", KINDS, GROUPS, *left), there)))

    send, recv = Send(0, 3, 0, "right", None), Recv(0, 3, 0, "left", None)
    ends = "one send and one receive a channel"
    assert channels([send], [recv]) == [] == channels([], [])
    assert channels([send, send], [recv]) == [("channel 3 with two sends or two receives", ends)]
    assert channels([send], [recv, recv]) == [("channel 3 with two sends or two receives", ends)]
    assert channels([send], []) == [("channels without both a send and a receive: [3]", ends)] == channels([], [recv])
    for wrong in ([replace(send, to="left")], [recv]), ([send], [replace(recv, source="right")]):
        ((what, rule),) = channels(wrong[0], wrong[1])
        assert what.startswith("channel 3 from left to ") and rule == "ends that name each other, on two islands"
    other = [("channel 3 sends float32[8], receives bool[2]", "equal types")]
    assert channels([send], [replace(recv, slot=1)]) == other
