"""Randomly changed plans, of fixed seeds, are refused or compute what they state. fuzz_plans.py tries more."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.branching import X, double, less, placed, same
from support.fuzz_plans import findings
from support.plan_interpreter import Endless, Interpreter, Stuck

import pathways as pw
from pathways.api.stages import Compiled
from pathways.dialect.plan.check import validate


def test_changed_plans_are_refused_or_compute_what_they_state(tmp_path: Path, thorough: bool) -> None:
    count = 40 if thorough else 12
    outcomes = dict(findings(tmp_path, 0, count))
    assert not {n: o for n, o in outcomes.items() if o.startswith("FOUND")}
    kinds = [o.split()[0] for o in outcomes.values()]
    assert min(kinds.count("same"), kinds.count("PWC0604")) >= 0.15 * count and len(kinds) >= 0.8 * count


def test_the_interpreter_computes_the_values_of_a_plan() -> None:
    """Mutants are compared with the interpreter, so its values must follow a plan whose slots are exchanged."""
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


def test_the_interpreter_stops_at_its_step_limit() -> None:
    one = placed(double, devices=1)
    plan = pw.program(lambda x: one(one(x))).lower(X).compile().plan
    with pytest.raises(Endless):
        Interpreter(left=1).run(plan, [X])
