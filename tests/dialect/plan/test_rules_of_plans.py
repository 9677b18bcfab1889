"""A plan that breaks one rule is refused for that rule, and not for another."""

from typing import Any

import pytest
from support.plan_edits import changed, every, on

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Branch, Copy, Free, Run, Send
from pathways.dialect.plan.nouns import Plan


def rule_of(plan: Plan) -> str:
    """Returns the rule for which a plan is refused, or an empty string."""
    try:
        validate(plan)
    except PathwaysError as error:
        found: Any = error.diagnostic
        return found.rule
    return ""


def test_a_slot_is_written_once(pipe: Plan) -> None:
    """A freed slot is not written again either, because lifetimes belong to slots."""
    at = every(pipe, Free)[0]
    slot, before = at.instruction.slots[0], pipe.streams[at.stream].instructions
    alive = next(s for s in every(pipe, Free)[1].instruction.slots if s != slot)
    copy = Copy(at.instruction.step, alive, slot, None)
    again = on(pipe, at.stream, instructions=(*before[: at.position + 1], copy, *before[at.position + 1 :]))
    assert rule_of(again) == "slots that were never written"
    run = every(pipe, Run)[0]
    twice = changed(pipe, run, outputs=run.instruction.inputs[:1] * len(run.instruction.outputs))
    assert rule_of(twice) == "slots that were never written"


def test_a_channel_carries_one_type(pipe: Plan) -> None:
    """Sends every buffer of another type in place of the right one."""
    rules: set[str] = set()
    for at in every(pipe, Send):
        buffers = pipe.streams[at.stream].buffers
        for slot, buffer in enumerate(buffers):
            if buffer.type != buffers[at.instruction.slot].type:
                rules.add(rule_of(changed(pipe, at, slot=slot)))
    assert "equal types" in rules and "" not in rules


def test_a_loop_has_a_test_and_a_body(plans: list[Plan]) -> None:
    looped = plans[4]
    at = next(a for a in every(looped, Branch) if a.instruction.kind == "while")
    first, second = at.instruction.bodies
    for bodies in ((), (first,), (first, second, second)):
        plan = looped
        for part in every(looped, Branch):
            if part.instruction.step == at.instruction.step:
                plan = changed(plan, part, bodies=bodies)
        assert rule_of(plan) == "a cond with bodies, a while with two"


def test_results_are_written_and_never_freed(pipe: Plan) -> None:
    port = pipe.results[0]
    number = next(n for n, s in enumerate(pipe.streams) if s.island == port.island)
    before = pipe.streams[number].instructions
    gone = on(pipe, number, instructions=(*before, Free(before[-1].step + 1, (port.slot,))))
    assert rule_of(gone) == "constants and results that are kept"
    unwritten = on(pipe, number, instructions=tuple(i for i in before if not isinstance(i, Run)))
    assert rule_of(unwritten) != ""


@pytest.mark.parametrize("donated", [(0, 0), (-1,), (99,)])
def test_each_input_is_donated_at_most_once(donated: tuple[int, ...], pipe: Plan) -> None:
    at = every(pipe, Run)[0]
    assert rule_of(changed(pipe, at, donated=donated)) == "positions in its inputs, each at most once"
