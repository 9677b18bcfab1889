"""Tests that similar unplaced operations, joined to one node, give the same program as one by one."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.frontends.jax import alike
from pathways.compiler.frontends.jax.graph import Loose
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import text

MANY, WIDTH = 12, 4
jit: Any = jax.jit
Grads = dict[str, Any]


def stage(params: Any, x: Any) -> Any:
    for weight in params.values():
        x = jnp.tanh(x @ weight)
    return x


def training_step(use: Callable[[Any, Grads], Any], *, waits: bool) -> str:
    """Returns the IR of a loop that adds the gradients of two stages.

    `use` makes results of the gradients of the first stage and of a placed function f. `waits`: the loop starts with
    totals, one of which is on another slice.
    """
    made = pw.make_virtual_device_set()
    here, there = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    first, second = jit(stage, in_shardings=here), jit(stage, in_shardings=there)
    f, g = jit(lambda x: x * 2, in_shardings=here), jit(lambda x: x * 3, in_shardings=there)

    def loss(params: Any, x: Any) -> Any:
        return second(params[1], first(params[0], x)).sum()

    def step(params: Any, totals: Any, xs: Any) -> Any:
        far = jnp.sin(jnp.ones((WIDTH, WIDTH)))
        begin = [totals[0] | {"w07": far}, totals[1]] if waits else jax.tree.map(jnp.zeros_like, params)
        placed = g(far)

        def body(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), ()

        grads, _ = lax.scan(body, begin, xs)
        return use(f, grads[0]), grads[1], placed

    square = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    params = [{f"w{i:02}": square for i in range(MANY)} for _ in range(2)]
    lowered = pw.program(step).lower(params, params, jax.ShapeDtypeStruct((3, 2, WIDTH), jnp.float32))
    return text(lowered.module)


def all_of_them(_: Any, grads: Grads) -> Any:
    return grads


def all_but_one(_: Any, grads: Grads) -> Any:
    return [grads[name] for name in grads if name != "w03"]


def one_is_awaited_elsewhere(f: Any, grads: Grads) -> Any:
    return grads | {"w05": f(grads["w05"])}


def none(f: Any, _: Grads) -> Any:
    return f(jnp.ones(()))


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("use", [all_of_them, all_but_one, one_is_awaited_elsewhere, none])
def test_joining_operations_does_not_change_the_program(
    use: Callable[[Any, Grads], Any], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    join = alike.joined

    def counted(members: list[alike.HeldBack]) -> Loose:
        counts.append(sum(len(member.eqns) for member in members))
        return join(members)

    monkeypatch.setattr(alike, "joined", counted)
    found: list[str] = []
    for fewest in (alike.FEWEST, 10**6):
        monkeypatch.setattr(alike, "FEWEST", fewest)
        found.append(training_step(use, waits=waits))
        assert (MANY in counts) == (fewest == 8)
        counts.clear()
    assert found[0] == found[1]


def delayed_totals() -> str:
    """Returns the IR of a loop that adds gradients to totals of two iterations before, or of three for the later ones.

    So some totals are the zeros from before the loop for one more iteration than others.
    """
    here = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    f = jit(stage, in_shardings=here)

    def step(params: Any, xs: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)

        def body(last: Any, x: Any) -> Any:
            grads = jax.grad(lambda p: f(p, x).sum())(params)
            older = {name: last[1 if name < f"w{MANY:02}" else 2][name] for name in grads}
            return [jax.tree.map(jnp.add, older, grads), *last[:2]], ()

        return lax.scan(body, [zeros] * 3, xs)[0]

    params = {f"w{i:02}": jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32) for i in range(2 * MANY)}
    return text(pw.program(step).lower(params, jax.ShapeDtypeStruct((6, 2, WIDTH), jnp.float32)).module)


@pytest.mark.parametrize(
    ("lowered", "answers"),
    [
        *((partial(training_step, use, waits=True), {True}) for use in (all_of_them, all_but_one)),
        (delayed_totals, {True, False}),
    ],
)
def test_rows_of_operations_of_later_iterations_do_not_change_the_program(
    lowered: Callable[[], str], answers: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[bool] = set()
    add_row = alike.RunOfEquations.add_row

    def noted(*args: Any) -> Any:
        outputs = add_row(*args)
        found.add(outputs is not None)
        return outputs

    texts: list[str] = []
    for one in (noted, lambda *_: None):
        monkeypatch.setattr(alike.RunOfEquations, "add_row", one)
        texts.append(lowered())
    assert texts[0] == texts[1] and found == answers


def test_joined_operations_of_several_results_and_mixed_operands_equal_jax() -> None:
    """One row of operations after one call has literals and equations of other widths."""
    made = pw.make_virtual_device_set()
    f = jit(lambda x: [x + i for i in range(10)], in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P()))

    def program(x: Any) -> Any:
        parts = f(x)
        return [lax.top_k(v * 2.0, 2) for v in parts], [v * w for v, w in pairwise(parts)]

    x = jnp.arange(4.0)
    want = ([lax.top_k((x + i) * 2.0, 2) for i in range(10)], [(x + i) * (x + i + 1) for i in range(9)])
    got = pw.program(program)(x)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), jax.tree.map(jnp.asarray, got), want))


def test_the_norm_of_all_gradients_takes_few_computations_per_slice() -> None:
    """Each gradient's part is sent to one slice and the norm back to all, without a computation per parameter."""
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(3)]

    def layer(w: Any, x: Any) -> Any:
        return x + sum(jnp.tanh(x @ one) for one in w)

    def step(stages: list[Any], params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x
            for stage, w in zip(stages, params, strict=True):
                h = stage(w, h)
            return h.sum()

        gradients = jax.grad(loss)(params)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradients)))
        return jax.tree.map(lambda w, g: w - 0.1 * g / norm, params, gradients)

    params = [[np.full((4, 4), 0.1 * (i + j + 1), np.float32) for j in range(12)] for i in range(3)]
    x = np.ones((2, 4), np.float32)
    program = pw.program(partial(step, [jit(layer, in_shardings=h) for h in homes]))
    gathered = [n for n in ProgramIR(program.lower(params, x).module).flow.calls() if n.op.gathered]
    assert len(gathered) <= 4 * len(homes)
    found, expected = program(params, x), jit(partial(step, [layer] * 3))(params, x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5)
