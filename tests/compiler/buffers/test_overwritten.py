"""Tests what calls and loops may overwrite: values that they use for the last time and that nothing else keeps."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.instructions import Branch, Run
from pathways.dialect.plan.nouns import Plan

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)


def placed() -> tuple[Any, Any]:
    """Returns two functions, each on its own slice."""
    made = pw.make_virtual_device_set()
    first, second = (NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
    f = jit(lambda x: x * 2, in_shardings=first, out_shardings=first)
    return f, jit(lambda x: x + 1, in_shardings=second, out_shardings=second)


def overwritten(plan: Plan, kind: type) -> list[int]:
    """Returns how many inputs each instruction of a kind overwrites; asserts that it reads each of those only once."""
    found: list[int] = []
    for stream in plan.streams:
        for instruction in stream.instructions:
            if isinstance(instruction, kind) and isinstance(instruction, Run | Branch):
                slots = [instruction.inputs[i] for i in instruction.donated]
                assert all(instruction.inputs.count(s) == 1 for s in slots)
                found.append(len(slots))
    return found


def loop_three_times(f: Any, g: Any, *carried: Any) -> Any:
    """Runs three iterations of a loop over both slices, which changes each value differently."""

    def body(carry: Any) -> Any:
        n, *values = carry
        return n + 1, *(g(f(v)) * (i + 1) for i, v in enumerate(values))

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, *carried))[1:]


LOOPS: dict[str, tuple[Any, int]] = {
    "made for it": (lambda f, g, x: loop_three_times(f, g, f(x)), 1),
    "made for it, twice": (lambda f, g, x: loop_three_times(f, g, f(x), f(x + 1)), 2),
    "carried twice": (lambda f, g, x: [loop_three_times(f, g, y, y) for y in [f(x)]], 0),
    "carried twice, and another": (lambda f, g, x: [loop_three_times(f, g, y, y, f(x + 1)) for y in [f(x)]], 1),
    "read afterwards": (lambda f, g, x: [(loop_three_times(f, g, y), f(y)) for y in [f(x)]], 0),
    "returned": (lambda f, g, x: [(loop_three_times(f, g, y), y) for y in [f(x)]], 0),
    "the caller's": (lambda f, g, x: loop_three_times(f, g, x), 0),
}


@pytest.mark.parametrize("case", LOOPS)
def test_a_loop_overwrites_carried_values_that_have_no_other_user(case: str) -> None:
    program, count = LOOPS[case]
    f, g = placed()
    compiled = pw.program(lambda x: program(f, g, x)).lower(X).compile()
    assert sum(overwritten(compiled.plan, Branch)) == count  # the initial counter is a constant, which stays
    plain = jit(lambda x: program(lambda v: v * 2, lambda v: v + 1, x))(X)
    for _ in range(2):
        for ours, theirs in zip(jax.tree.leaves(compiled(X)), jax.tree.leaves(plain), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


CALLS: dict[str, tuple[Any, int]] = {
    "used for the last time": (lambda f, h, x: h(f(x)), 1),
    "read by another afterwards": (lambda f, h, x: [(h(y), f(y)) for y in [f(x)]], 0),
    "returned": (lambda f, h, x: [(h(y), y) for y in [f(x)]], 0),
    "the caller's": (lambda f, h, x: (h(x), f(x)), 0),
    "used for the last time by one of two": (lambda f, h, x: [(h(y), h(z), z) for y, z in [(f(x), f(x + 1))]], 0),
    "used for the last time by both": (lambda f, h, x: (h(f(x)), h(f(x + 1))), 2),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_overwrite_operands_that_every_call_of_the_computation_uses_last(case: str) -> None:
    program, count = CALLS[case]
    home = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    f, h = (jit(function, in_shardings=home, out_shardings=home) for function in (lambda x: x * 2, lambda x: x - 1))
    compiled = pw.program(lambda x: program(f, h, x)).lower(X).compile(merge=False)
    assert sum(overwritten(compiled.plan, Run)) == count
    plain = jit(lambda x: program(lambda v: v * 2, lambda v: v - 1, x))(X)
    for ours, theirs in zip(jax.tree.leaves(compiled(X)), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_a_call_overwrites_at_most_as_many_operands_as_it_has_results() -> None:
    """Both operands are used for the last time, but XLA gets only as many donations as there are results."""
    home = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    add = jit(lambda a, b: a + b, in_shardings=home, out_shardings=home)
    both = jit(lambda a, b: (a + b, a - b), in_shardings=home, out_shardings=home)
    one = pw.program(lambda a, b: add(a, b), donate_argnums=(0, 1)).lower(X, X).compile()
    two = pw.program(lambda a, b: both(a, b), donate_argnums=(0, 1)).lower(X, X).compile()
    assert overwritten(one.plan, Run) == [1] and overwritten(two.plan, Run) == [2]
    twice = pw.program(lambda a: [add(y, y) for y in both(a, a)]).lower(X).compile(merge=False)
    assert overwritten(twice.plan, Run) == [0, 0, 0]
    kept = pw.program(lambda a, b: add(a, b), donate_argnums=1).lower(X, X).compile()
    (run,) = kept.plan.runs()
    assert run.donated == (1,)
