"""Some changed plans, of fixed seeds; fuzz_plans.py says how to try more."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.branching import X, double, less, placed, same
from support.fuzz_plans import findings
from support.plan_interpreter import Endless, Interpreter, Stuck

import pathways as pw
from pathways.api.stages import Compiled
from pathways.dialect.plan.check import validate


def test_changed_plans_are_refused_or_do_what_they_say(tmp_path: Path) -> None:
    outcomes = dict(findings(tmp_path, 0, 100))
    assert not {n: o for n, o in outcomes.items() if o.startswith("FOUND")}
    kinds = [o.split()[0] for o in outcomes.values()]
    assert kinds.count("same") >= 15 and kinds.count("PWC0604") >= 15 and len(kinds) >= 80


def test_the_interpreter_says_what_a_plan_says() -> None:
    """What mutants are compared with: the plan's own values, and others where slots are exchanged."""
    one, two = placed(double, devices=1), placed(less, devices=1)
    compiled = pw.program(lambda x, y: (two(one(x)), one(two(y)))).lower(X, X).compile()
    plan = compiled.plan
    same((r.stored() for r in compiled.run_flat([X, X + 5])), Interpreter().run(plan, [X, X + 5]))
    first, second = plan.results
    crossed = replace(plan, results=(replace(first, slot=second.slot, island=second.island), second))
    validate(crossed)
    there = Interpreter().run(crossed, [X, X + 5])
    same(there, (there[1], there[1]))
    same((r.stored() for r in Compiled(crossed).run_flat([X, X + 5])), there)
    stuck = replace(plan, streams=tuple(replace(s, instructions=s.instructions[1:]) for s in plan.streams))
    with pytest.raises(Stuck):
        Interpreter().run(stuck, [X, X])


def test_what_takes_too_long_is_given_up() -> None:
    one = placed(double, devices=1)
    plan = pw.program(lambda x: one(one(x))).lower(X).compile().plan
    with pytest.raises(Endless):
        Interpreter(left=1).run(plan, [X])
