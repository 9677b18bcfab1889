"""Tests which calls of a loop over microbatches are one stage: by arguments, by dependence, and what goes with them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.schedule.recognize import recognize
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of

jit: Any = jax.jit
XS = np.ones((3, 4, 4), np.float32)
W = np.eye(4, dtype=np.float32)


def homes(count: int) -> list[NamedSharding]:
    made = pw.make_virtual_device_set()
    return [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(count)]


def first(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def second(*xs: Any) -> Any:
    return sum(jnp.cos(x) for x in xs)


def third(*xs: Any) -> Any:
    return sum(jnp.exp(x) for x in xs)


def lowered(function: Callable[..., Any], *arguments: Any) -> ProgramIR:
    return ProgramIR(pw.program(function).lower(*arguments).module)


def actions(program: ProgramIR, *, gathered: bool = False) -> list[str]:
    """Returns each call by function, with its action or `-`; of those that the user placed, or of the others."""
    found = recognize(program)
    assert found is not None
    calls = [n for n in program.flow.calls() if bool(n.op.gathered) is gathered]
    return [f"{name_of(n.op)} {found.actions.get(n.number, '-')}" for n in calls]


def test_calls_with_other_parameters_are_another_stage() -> None:
    """Two towers on one slice: six calls of one function, three with each parameter."""
    here, there = homes(2)
    tower, join = jit(first, in_shardings=here), jit(second, in_shardings=there)

    def program(a: Any, b: Any, xs: Any) -> Any:
        return [join(tower(a, xs[m]), tower(b, xs[m])) for m in range(3)]

    found = actions(lowered(program, W, 2 * W, XS))
    assert found == [a for m in range(3) for a in (f"first 0F{m}", f"first 1F{m}", f"second 2F{m}")]


def test_microbatches_that_are_arguments_of_their_own_are_alike_by_their_types() -> None:
    here, there = homes(2)
    f, g = jit(first, in_shardings=here), jit(second, in_shardings=there)
    found = actions(lowered(lambda w, x, y, z: [g(f(w, v)) for v in (x, y, z)], W, *XS))
    assert found == [a for m in range(3) for a in (f"first 0F{m}", f"second 1F{m}")]


def test_calls_that_mix_microbatches_in_two_orders_are_no_pipeline() -> None:
    """Through one function the last call takes its own microbatch, through the other the one after it."""
    here, left, right, last = homes(4)
    f, g, h, end = (
        jit(call, in_shardings=home)
        for call, home in ((first, here), (second, left), (third, right), (lambda x, y: x * y, last))
    )

    def shifted(by: int) -> Any:
        def program(w: Any, xs: Any) -> Any:
            made = [f(w, xs[m]) for m in range(3)]
            return [end(g(made[m]), h(made[(m + by) % 3])) for m in range(3)]

        return lowered(program, W, XS)

    assert recognize(shifted(1)) is None
    found = recognize(shifted(0))
    assert found is not None and {a.microbatch for a in found.actions.values()} == {0, 1, 2}


def test_one_call_of_all_microbatches_is_no_stage() -> None:
    here, there = homes(2)
    f, g = jit(first, in_shardings=here), jit(second, in_shardings=there)
    found = actions(lowered(lambda w, xs: g(*[f(w, xs[m]) for m in range(3)]), W, XS))
    assert found == ["first 0F0", "first 0F1", "first 0F2", "second -"]


def test_calls_that_take_their_own_results_are_no_microbatches() -> None:
    """Each call of a chain waits for the one before it: they are not alike."""
    (here,) = homes(1)
    f = jit(first, in_shardings=here)

    def chain(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = f(w, x)
        return x

    assert recognize(lowered(chain, W, XS[0])) is None


@pytest.mark.parametrize("count", [2, 3])
def test_the_most_calls_that_are_alike_are_the_microbatches(count: int) -> None:
    """Two other calls that are alike, of another argument, are not part of the pipeline of three."""
    here, there, other = homes(3)
    f, g, h = jit(first, in_shardings=here), jit(second, in_shardings=there), jit(third, in_shardings=other)

    def program(w: Any, xs: Any, ys: Any) -> Any:
        return [g(f(w, xs[m])) for m in range(3)], [h(ys[m]) for m in range(count)]

    found = actions(lowered(program, W, XS, XS))
    expected = [a for m in range(3) for a in (f"first 0F{m}", f"second 1F{m}")]
    assert found == [*expected, *["third -"] * count]


def test_operations_between_stages_go_with_the_call_on_their_slice() -> None:
    """A microbatch is cut and doubled for its first stage, on its slice; its result is scaled for the second one."""
    here, there = homes(2)
    f, g = jit(first, in_shardings=here), jit(second, in_shardings=there)

    def program(w: Any, xs: Any) -> Any:
        return sum(g(f(w, xs[m] * 2.0) * 3.0) for m in range(2))

    made = lowered(program, W, XS)
    assert actions(made) == ["first 0F0", "second 1F0", "first 0F1", "second 1F1"]
    loose = actions(made, gathered=True)
    cut, scaled = ([a.split()[1] for a in loose if a.startswith(name)] for name in ("slice", "mul"))
    assert cut == ["0F0", "0F1"] and scaled == ["0F0", "0F1"]
    assert [a for a in loose if a.startswith("add")] == ["add 1F0", "add -"]  # the second sum is of both microbatches


def test_what_all_microbatches_use_goes_with_none() -> None:
    """The doubled parameters are made once, for all microbatches."""
    here, there = homes(2)
    f, g = jit(first, in_shardings=here), jit(second, in_shardings=there)

    def program(w: Any, xs: Any) -> Any:
        twice = w * 2.0
        return [g(f(twice, xs[m])) for m in range(2)]

    loose = actions(lowered(program, W, XS), gathered=True)
    assert [a for a in loose if a.startswith("mul")] == ["mul -"]
