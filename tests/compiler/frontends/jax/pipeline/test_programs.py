"""Tests pipelined losses in programs: sharded stages, tied weights, callbacks, 64 bits, calls outside of programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.pipelines import slices

import pathways as pw
from pathways.api.process import process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.instructions import Recv

WIDTH, ROWS = 8, 16
PARAMS = {f"w{i}": np.linspace(-1, 1 + i, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH) / 4 for i in range(4)}
X = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def layers(params: Any, x: Any) -> Any:
    for i in range(4):
        x = x + jnp.tanh(x @ params[f"w{i}"])
    return x.mean()


def constrained(params: Any, x: Any) -> Any:
    for i in range(4):
        x = jax.lax.with_sharding_constraint(x + jnp.tanh(x @ params[f"w{i}"]), P("data"))
    return x.mean()


def assert_close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


SPECS: dict[str, Any] = {
    "function": lambda path, leaf: P(None, "model") if "w1" in path else P(),
    "patterns": {r"w[12]'\]": P("model")},
    "words": {"w1": P("model")},
    "tree": {"w0": P(), "w1": P(None, "model"), "w2": P("model"), "w3": P()},
    "nothing": None,
}


@pytest.mark.long("larger functions of the same kind", keep=("tree", "words", "nothing", "patterns"))
@pytest.mark.parametrize("specs", SPECS)
def test_param_specs_shard_the_parameters_of_stages(specs: str) -> None:
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=4).mesh(("data", "model"), (2, 2)) for _ in range(2)]
    loss = pw.pipeline(constrained, meshes, microbatches=2, param_specs=SPECS[specs])
    compiled = pw.program(jax.value_and_grad(loss)).lower(PARAMS, X).compile()
    assert_close(compiled(PARAMS, X), jax.value_and_grad(layers)(PARAMS, X))
    split = {p.name for p in compiled.plan.inputs if p.name.startswith("params") and _is_split(compiled.plan, p)}
    expected = {
        "function": {"w1"},
        "patterns": {"w1", "w2"},
        "words": {"w1"},
        "tree": {"w1", "w2"},
        "nothing": set[str](),
    }[specs]
    assert split == {f"params['{name}']" for name in expected}


def _is_split(plan: Any, port: Any) -> bool:
    stream = next(s for s in plan.streams if s.island == port.island)
    return any(stream.buffers[port.slot].layout.dims)


def test_param_specs_of_another_tree_structure_are_refused() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0112.*\n(.*\n)*.*a tree like an argument of the loss"):
        pw.pipeline(layers, slices(2), param_specs=[P(), P()]).stages(PARAMS, X)
    with pytest.raises(PathwaysError, match="PWC0112"):  # as many leaves in another structure
        pw.pipeline(layers, slices(2), param_specs=[P()] * 4).stages(PARAMS, X)


def test_a_tied_weight_and_its_gradient_are_each_sent_once_per_step() -> None:
    def tied(params: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w0"])
        for i in (1, 2, 3):
            h = h + jnp.tanh(h @ params[f"w{i}"])
        return (h @ params["w0"].T).mean()

    loss = pw.pipeline(tied, slices(2), microbatches=4)
    compiled = pw.program(jax.value_and_grad(loss)).lower(PARAMS, X).compile(schedule="1f1b")
    assert_close(compiled(PARAMS, X), jax.value_and_grad(tied)(PARAMS, X))
    arrivals = [
        s.buffers[i.slot].type.shape for s in compiled.plan.streams for i in s.instructions if isinstance(i, Recv)
    ]
    assert arrivals.count((WIDTH, WIDTH)) == 2, "the weight there, its gradient back"


def test_a_penalty_on_all_weights_transfers_no_weight() -> None:
    def penalized(params: Any, x: Any) -> Any:
        return layers(params, x) + 1e-2 * sum((w**2).sum() for w in params.values())

    compiled = pw.program(pw.pipeline(penalized, slices(4))).lower(PARAMS, X).compile()
    assert_close(compiled(PARAMS, X), penalized(PARAMS, X))
    moved = {s.buffers[i.slot].type.shape for s in compiled.plan.streams for i in s.instructions if isinstance(i, Recv)}
    assert (WIDTH, WIDTH) not in moved


def test_callbacks_in_a_model_run_once_per_microbatch(capfd: pytest.CaptureFixture[str]) -> None:
    def loss(params: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w0"])
        jax.debug.print("seen {}", jnp.isfinite(h).all())
        return jnp.tanh(h @ params["w1"]).mean()

    program = pw.program(jax.grad(pw.pipeline(loss, slices(2), microbatches=2)))
    jax.block_until_ready(jax.tree.leaves(program(PARAMS, X)))
    assert process().controller.flights.drain(60)
    assert capfd.readouterr().out.count("seen True") == 2


def test_64_bit_losses_stay_64_bit() -> None:
    with jax.enable_x64(True):
        wide = jax.tree.map(np.float64, PARAMS), np.float64(X)
        found = pw.program(jax.value_and_grad(pw.pipeline(layers, slices(2), microbatches=2)))(*wide)
        assert_close(found, jax.value_and_grad(layers)(*wide), 1e-13)
        assert found[0].dtype == np.float64


def test_a_pipeline_without_microbatches_may_return_any_pytree() -> None:
    def forward(params: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w0"])
        return {"hidden": h, "out": jnp.tanh(h @ params["w1"]), "same": params["w2"], "one": 1.0}

    assert_close(pw.program(pw.pipeline(forward, slices(2)))(PARAMS, X), forward(PARAMS, X))


def test_values_that_a_loss_closes_over_reach_its_stages() -> None:
    table = jnp.arange(64 * WIDTH, dtype=jnp.float32).reshape(-1, WIDTH) / 100

    def step(params: Any, x: Any) -> Any:
        scale = x.max()  # a value of the program that is no argument of the loss

        def loss(params: Any, x: Any) -> Any:
            h = jnp.tanh(x @ params["w0"]) * scale
            return (jnp.tanh(h @ params["w1"]) + table[:ROWS] + table.sum()).mean()

        return jax.grad(loss if not placed else pw.pipeline(loss, placed))(params, x)

    placed: list[Any] = []
    expected = jax.jit(step)(PARAMS, X)
    placed = slices(2)
    assert_close(pw.program(step)(PARAMS, X), expected)


def test_a_pipelined_loss_outside_of_a_program_is_refused() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0112.*\n(.*\n)*.*pw.program"):
        pw.pipeline(layers, slices(2))(PARAMS, X)
    with pytest.raises(PathwaysError, match="PWC0112"):
        jax.jit(jax.grad(pw.pipeline(layers, slices(2))))(PARAMS, X)


def test_a_loss_that_contains_placed_calls_is_refused() -> None:
    made = pw.make_virtual_device_set()
    home = NamedSharding(made.add_slice(devices=1).mesh("x"), P())
    inner: Any = jax.jit(lambda w, x: jnp.tanh(x @ w), in_shardings=home)

    def loss(params: Any, x: Any) -> Any:
        return jnp.tanh(inner(params["w0"], x) @ params["w1"]).mean()

    with pytest.raises(PathwaysError, match=r"PWC0112.*placed already"):
        pw.program(pw.pipeline(loss, slices(2))).lower(PARAMS, X)
