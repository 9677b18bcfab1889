"""A branch stated by hand breaks one rule of branches at a time, and is refused with what it states."""

from dataclasses import replace
from typing import Any

import pytest
from support.plans_by_hand import body, branch, group, kind, plan, port, stream

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.check_branches import branch_problems
from pathways.dialect.plan.instructions import Branch
from pathways.dialect.plan.nouns import Body, Plan

INDEX, FLAG = (replace(kind(0, 4), type=ArrayType((), dtype)) for dtype in ("int32", "bool"))
KINDS = (INDEX, kind(0, 32), kind(1, 32), kind(0, 16, dims=(("x",),)))
GROUPS = (group("i", 0), group("x", 1), group("made", 1), group("y", 2), group("far", 2), group("cut", 3))
"""Slots: 0 a number, 1 and 2 arrays on mesh 0, 3 and 4 arrays on mesh 1, 5 an array that is split."""
_SAME = body(stream("left", (KINDS[1],), (group("a", 0),)))
SAME = replace(_SAME, inputs=(port("left", 0),), results=(port("left", 0),))
_ASKS = body(stream("left", (KINDS[1], FLAG), (group("a", 0), group("go", 1))))
ASKS = replace(_ASKS, inputs=(port("left", 0),), results=(replace(port("left", 1), type=ArrayType((), "bool")),))
ELSEWHERE = replace(SAME, streams=(replace(SAME.streams[0], kinds=(kind(1, 32),)),))
COND = branch(4, "cond", 0, 1, inputs=(0, 1), taken=(0, 1), outputs=(2,), made=(0,), meshes=(0, 1))
LOOP = branch(4, "while", 0, 1, inputs=(1,), taken=(0,), outputs=(2,), made=(0,), meshes=(0,))


def with_part(part: Branch, *bodies: Body, right: tuple[Branch, ...] = (), twice: bool = False) -> Plan:
    parts = (part, part) if twice else (part,)
    streams = [stream("left", KINDS, GROUPS, *parts)]
    if right:
        streams.append(stream("right", (kind(2, 32),), (group("r", 0, 0),), *right))
    return plan(*streams, bodies=bodies)


def found(part: Branch, *bodies: Body, **more: Any) -> list[tuple[str, str]]:
    return list(branch_problems(with_part(part, *bodies, **more)))


def test_branches_as_their_bodies_are_have_no_problem() -> None:
    assert found(COND, SAME, SAME) == [] == found(LOOP, ASKS, SAME)
    assert found(replace(COND, donated=(1, 0)), SAME, SAME) == []
    unread = replace(SAME, inputs=(port("left", -1),))
    assert found(replace(COND, bodies=(0,), inputs=(0, 4)), unread) == []


ONCE, ALL = "each at most once", "consecutive numbers from 0"
EDITS: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "if"}, "step 4 is a if of 2 bodies", "a cond with bodies, a while with two"),
    ({"bodies": ()}, "step 4 is a cond of 0 bodies", "a cond with bodies, a while with two"),
    ({"kind": "while", "bodies": (0,)}, "step 4 is a while of 1 bodies", "a cond with bodies, a while with two"),
    ({"bodies": (0, 2)}, "step 4 runs bodies [2]", "bodies before it: 2"),
    ({"bodies": (-1, 0)}, "step 4 runs bodies [-1]", "bodies before it: 2"),
    ({"inputs": (0,)}, "step 4 (b4) names 1 slots for 2 operands", "a slot for each operand"),
    ({"outputs": ()}, "step 4 (b4) names 2 slots for 2 operands", "a slot for each operand"),
    ({"donated": (1, 1)}, "step 4 (b4) donates (1, 1) of 2 inputs", ONCE),
    ({"donated": (2,)}, "step 4 (b4) donates (2,) of 2 inputs", ONCE),
    ({"donated": (-1,)}, "step 4 (b4) donates (-1,) of 2 inputs", ONCE),
    ({"meshes": (0, 2)}, "step 4 (b4) works on meshes [2] of left", "meshes of its island"),
    ({"meshes": (-1, 3)}, "step 4 (b4) works on meshes [-1, 3] of left", "meshes of its island"),
    ({"taken": (0, 0)}, "step 4 (b4) has some operands or results twice", "each on one island"),
    ({"taken": (0, 2)}, "step 4 (b4) has the operands [0, 2]", ALL),
    ({"taken": (1, 2)}, "step 4 (b4) has the operands [1, 2]", ALL),
    ({"made": (1,)}, "step 4 (b4) has the results [1]", ALL),
    ({"taken": (1, 0)}, "step 4 (b4) has a condition of type float32[8]", "int32[]"),
    ({"inputs": (), "taken": ()}, "step 4 (b4) has a condition of type nothing", "int32[]"),
]


@pytest.mark.parametrize(("fields", "what", "rule"), EDITS)
def test_a_part_of_a_branch_that_breaks_a_rule_is_described(fields: dict[str, Any], what: str, rule: str) -> None:
    assert found(replace(COND, **fields), SAME, SAME) == [(what, rule)]


def test_operands_and_results_are_those_of_each_body() -> None:
    beside = [("step 4 (b4) operand 0 is float32[8] on left", "float32[8] on left, as the body has it")]
    assert found(replace(COND, inputs=(0, 3)), SAME, SAME) == beside * 2
    assert found(replace(COND, inputs=(0, 5)), SAME, SAME) == beside * 2
    assert found(COND, SAME, replace(SAME, inputs=ELSEWHERE.inputs)) == []
    results = [("step 4 (b4) result 0 is float32[8] on left", "float32[8] on left, as the body has it")]
    assert found(replace(COND, outputs=(4,)), SAME, SAME) == results * 2
    assert found(COND, SAME, ELSEWHERE) == beside + results
    assert found(COND, replace(SAME, inputs=()), SAME) == [("step 4 (b4) operands: 1", "0, as the body has")]
    more = replace(SAME, results=SAME.results * 2)
    assert found(COND, SAME, more) == [("step 4 (b4) results: 1", "2, as the body has")]
    number = replace(COND, outputs=(0,))
    assert found(number, SAME, SAME)[0][0] == "step 4 (b4) result 0 is int32[] on left"


def test_all_islands_have_the_same_branch() -> None:
    differs = [("step 4 is another branch on each island", "one part of the same branch per island")]
    part = branch(4, "cond", 0, 1, inputs=(0,), taken=(2,), outputs=(1,), made=(1,), meshes=(2,))
    assert found(COND, SAME, SAME, right=(replace(part, kind="while"),)) == differs
    assert found(COND, SAME, SAME, right=(replace(part, bodies=(1, 0)),)) == differs
    assert found(COND, SAME, SAME, twice=True) == differs
    both = replace(part, taken=(1,))
    assert found(COND, SAME, SAME, right=(both,)) == [
        ("step 4 (b4) has some operands or results twice", "each on one island")
    ]
    far = replace(SAME, streams=(*SAME.streams, stream("right", (kind(2, 32),), (group("r", 0, 0),))))
    far = replace(far, inputs=(*SAME.inputs, port("right", 0)), results=(*SAME.results, port("right", 1)))
    assert found(COND, far, far, right=(part,)) == []
    own = replace(far, inputs=SAME.inputs, results=SAME.results)
    missing = [("step 4 (b4) runs bodies on ['right']", "a part of the branch on each island of its bodies")]
    assert found(COND, SAME, own) == missing


def test_a_loop_carries_its_last_operands() -> None:
    more = replace(LOOP, outputs=(2, 4), made=(0, 1))
    assert found(more, ASKS, SAME) == [("step 4 (b4) has 2 results", "at most 1, the values that it carries")]
    (asks, *_) = found(LOOP, replace(ASKS, results=SAME.results), SAME)
    assert asks == (f"step 4 (b4) has a loop condition of types {[ArrayType((8,), 'float32')]}", "bool[]")
    carried = found(replace(LOOP, outputs=(4,)), ASKS, SAME)
    changed = "step 4 (b4) changes the type or place of the carried value 0"
    assert carried[-1] == (changed, "the type and place of its operand")
    kinds = (KINDS[1], KINDS[2])
    two = stream("left", (*kinds, FLAG), (group("a", 0), group("b", 1), group("go", 2)))
    inputs = (port("left", 0), port("left", 1))
    asks_two = replace(body(two), inputs=inputs, results=(replace(ASKS.results[0], slot=2),))
    last = replace(body(two), inputs=inputs, results=(port("left", 1),))
    beside = replace(LOOP, inputs=(1, 3), taken=(0, 1), outputs=(4,))
    assert found(beside, asks_two, last) == []
    assert found(replace(beside, outputs=()), asks_two, last) != []


def test_only_the_body_of_a_loop_overwrites_what_it_carries() -> None:
    rule = "a loop that overwrites only what it carries"
    eats = replace(SAME, inputs=(port("left", 0, donated=True),))
    assert found(LOOP, ASKS, eats) == []
    assert [r for _, r in found(LOOP, replace(ASKS, inputs=eats.inputs), SAME)] == [rule]
    assert [r for _, r in found(COND, SAME, eats)] == [rule]
    both = (port("left", 0, donated=True), port("left", 0))
    given = replace(LOOP, inputs=(1, 2), taken=(0, 1), outputs=(2,))
    asks = replace(ASKS, inputs=(port("left", 0),) * 2)
    assert [r for _, r in found(given, asks, replace(SAME, inputs=both))] == [rule]
    assert found(given, asks, replace(SAME, inputs=both[::-1])) == []
