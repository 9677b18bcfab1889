"""Builds training steps over stacked layers, cut into stages on slices: as a program and in plain JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

jit: Any = jax.jit
tree: Any = jax.tree


def layers(w: Any, x: Any) -> Any:
    """Applies the layers of a stage, one after the other."""

    def layer(x: Any, w: Any) -> tuple[Any, None]:
        return jnp.tanh(x @ w["mix"] + w["shift"]), None

    return lax.scan(layer, x, w)[0]


@dataclass(frozen=True)
class Stacks:
    """A step over a stack of layers; `program` and `plain` have the same signature; `arguments` are for one step."""

    step: Any
    plain: Any
    arguments: tuple[Any, ...]
    cuts: tuple[tuple[int, int], ...]

    def program(self, **options: Any) -> Any:
        return pw.program(self.step, **options)


def stacks(
    sizes: Sequence[int],
    tx: Any = None,
    *,
    dtype: Any = jnp.float32,
    width: int = 8,
    batch: int = 4,
    microbatches: int = 0,
    moved: bool = False,
    devices: int = 1,
    axis: int = 0,
    seed: int = 0,
) -> Stacks:
    """Builds a step with `sizes[k]` layers in stage k.

    With `microbatches`, a scan calls the stages. With `moved`, `jax.device_put` moves each stage's layers to its slice
    before the stages are called.
    """
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=devices).mesh("x") for _ in sizes]
    tx = optax.sgd(0.1) if tx is None else tx
    stops = np.cumsum(sizes).tolist()
    cuts = tuple(zip([0, *stops[:-1]], stops, strict=True))

    def staged(stages: Sequence[Any], places: Sequence[Any]) -> Any:
        def part(params: Any, k: int) -> Any:
            def cut(w: Any) -> Any:
                taken = lax.slice_in_dim(w, *cuts[k], axis=axis if w.ndim == 3 else 0)
                taken = jnp.moveaxis(taken, axis, 0) if w.ndim == 3 else taken
                return jax.device_put(taken, places[k]) if moved and places else taken

            return tree.map(cut, params)

        def loss(params: Any, batch: Any) -> Any:
            parts = [part(params, k) for k in range(len(cuts))]

            def one(total: Any, x: Any) -> tuple[Any, None]:
                for stage, w in zip(stages, parts, strict=True):
                    x = stage(w, x)
                return total + x.astype(jnp.float32).mean(), None

            if not microbatches:
                return one(0.0, batch)[0]
            split = batch.reshape(microbatches, -1, *batch.shape[1:])
            return lax.scan(one, jnp.float32(0), split)[0] / microbatches

        def step(params: Any, state: Any, batch: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, batch)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        return step

    rng = np.random.default_rng(seed)
    mix = 0.3 * rng.standard_normal((sum(sizes), width, width))
    params = {
        "mix": jnp.asarray(np.moveaxis(mix, 0, axis), dtype),
        "shift": jnp.asarray(0.1 * rng.standard_normal((sum(sizes), width)), dtype),
    }
    x = jnp.asarray(rng.standard_normal((batch, width)), dtype)
    shardings = [NamedSharding(m, P()) for m in meshes]
    step = staged([jit(layers, in_shardings=s) for s in shardings], shardings)
    plain = staged([layers] * len(sizes), [])
    return Stacks(step, plain, (params, tx.init(params), x), cuts)
