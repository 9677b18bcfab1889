"""A check of all slots of a stream at once finds the same problems as checks of one instruction at a time."""

from collections.abc import Iterator
from random import Random

import pytest
from support.plans_by_hand import group, kind, plan, port, stream

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan import check
from pathways.dialect.plan.check import Problem, stream_problems
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Run
from pathways.dialect.plan.nouns import Computation, ConstantData, Plan, PlanMesh

F8, MESH = ArrayType((8,), "float32"), PlanMesh("m0", "s0", "left", (("x", 2),), (0, 1))
WHOLE = ((),)
DOUBLE = Computation("double", b"", (0,), (F8,), (WHOLE,), (F8,), (WHOLE,), (("x", 2),))
SLOT_COUNT = 10
ODD = (-1, SLOT_COUNT, 1 << 62, 1 << 63, -(1 << 63) - 1)


def random_plan(random: Random) -> Plan:
    """Draws a plan whose instructions mostly read values that are alive, and write slots that are free."""
    alive, free = [0, 1, 2], list(range(3, SLOT_COUNT))
    steps: list[Instruction] = []

    def taken() -> int:
        return random.choice(alive) if alive and random.random() < 0.96 else random.choice([*ODD, *range(SLOT_COUNT)])

    def given() -> int:
        return free.pop() if free and random.random() < 0.96 else random.choice([*ODD, *range(SLOT_COUNT)])

    for step in range(random.randint(0, 8)):
        source, target, what = taken(), given(), random.randrange(4)
        is_dropped = what in (0, 2) or (what == 3 and random.random() < 0.5)
        match what:
            case 0:
                donated = (0,) if random.random() < 0.97 else random.choice([(), (1,), (-1,), (0, 0)])
                steps.append(Run(step, 0, 0, (source,), (target,), donated, "", None))
            case 1:
                steps.append(Copy(step, source, target, None))
            case 2:
                steps.append(Free(step, (source,) if random.random() < 0.97 else (source, taken())))
            case _:
                donated = (0,) if is_dropped else ()
                steps.append(Branch(step, "while", (), (source,), (0,), (target,), (0,), (), "b", None, 0, donated))
        if is_dropped and source in alive:
            alive.remove(source)
        if what != 2 and 0 <= target < SLOT_COUNT:
            alive.append(target)
    made = stream("left", (kind(0, 32),), (group("x", *[0] * SLOT_COUNT),), *steps)
    results = (port("left", taken()),) if random.random() < 0.5 else ()
    inputs = (port("left", 0, donated=True), port("left", 1, donated=random.random() < 0.5))
    constants = (ConstantData("left", 2, "c"),)
    return plan(
        made, computations=(DOUBLE,), meshes=(MESH,), inputs=inputs, results=results, constant_buffers=constants
    )


def problems(made: Plan) -> Iterator[Problem]:
    return (problem for problem in stream_problems(made) if problem.at is not None or "results" in problem.what)


def test_all_slots_at_once_give_the_problems_of_one_instruction_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    random, quick = Random(0), check._are_slots_sound  # pyright: ignore[reportPrivateUsage]
    accepted = refused = 0
    for _ in range(1500):
        made = random_plan(random)
        monkeypatch.setattr(check, "_are_slots_sound", quick)
        found = list(problems(made))
        monkeypatch.setattr(check, "_are_slots_sound", lambda *_: False)
        assert found == list(problems(made))
        accepted, refused = accepted + (not found), refused + bool(found)
    assert accepted > 300 and refused > 300
