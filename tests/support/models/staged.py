"""What the models share: stages on slices, a training step over them, and the same without any devices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

Stage = Callable[[Any, Any], Any]
"""Parameters and inputs -> outputs."""
jit: Any = jax.jit


@dataclass(frozen=True)
class Model:
    """A training step as a program and as plain JAX, and the arguments of the first step."""

    program: pw.Program
    plain: Callable[..., Any]
    arguments: tuple[Any, ...]


def slices_for(count: int, pins: Sequence[str] | None) -> list[Any]:
    devices = pw.make_virtual_device_set()
    return [devices.add_slice(devices=2, island=None if pins is None else pins[i]) for i in range(count)]


def on_slice(stage: Stage, slice_: Any) -> Stage:
    """The stage on its slice: parameters replicated, the batch split."""
    mesh = slice_.mesh("data")
    whole, batch = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    return jit(stage, in_shardings=(whole, batch))


MICROBATCHES = 4


def training_step(stages: Sequence[Stage], loss: Callable[[Any, Any], Any], optimizer: Any) -> Callable[..., Any]:
    """`step(params, state, x, y) -> params, state, loss`, with one tree of parameters a stage, in microbatches."""

    def of(params: Any, x: Any, y: Any) -> Any:
        for stage, own in zip(stages, params, strict=True):
            x = stage(own, x)
        return loss(x, y)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def body(total: Any, xy: Any) -> Any:
            value, grads = jax.value_and_grad(of)(params, *xy)
            return jax.tree.map(jnp.add, total, grads), value

        cut = [v.reshape(MICROBATCHES, -1, *v.shape[1:]) for v in (x, y)]
        total, values = lax.scan(body, jax.tree.map(jnp.zeros_like, params), tuple(cut))
        grads = jax.tree.map(lambda g: g / MICROBATCHES, total)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, values.mean()

    return step


def model(
    stages: Sequence[Stage], params: list[Any], x: Any, y: Any, loss: Callable[[Any, Any], Any], optimizer: Any,
    pins: Sequence[str] | None,
) -> Model:  # fmt: skip
    placed = [on_slice(s, v) for s, v in zip(stages, slices_for(len(stages), pins), strict=True)]
    arguments = (params, optimizer.init(params), x, y)
    program = pw.program(training_step(placed, loss, optimizer), example_args=arguments)
    return Model(program, jit(training_step(stages, loss, optimizer)), arguments)
