# pyright: basic
"""Measures the analysis of a loss in microbatches, against tracing the loss and against its first call.

    python bench/mixing.py      a masked language model of 4, 12 and 24 layers, with and without dropout

For each model it prints the seconds to trace the loss for one microbatch. The walk over both traces, and all work that
makes the loss exact, are printed in multiples of one trace. All of it is also printed as a fraction of the first call
of a training step in four stages (compiling).
"""

import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.mixing.analyze import related, traced_twice
from pathways.compiler.frontends.jax.pipeline.mixing.handling import handled

ROWS, LENGTH, WIDTH, WORDS, MICROBATCHES = 16, 32, 64, 128, 4


class Block(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
        h = nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))
        return x + nn.Dropout(self.rate, deterministic=self.rate == 0)(h)


class Transformer(nn.Module):
    layers: int
    rate: float

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(WORDS, WIDTH)(tokens)
        for _ in range(self.layers):
            x = Block(self.rate)(x)
        return nn.Dense(WORDS)(nn.LayerNorm()(x))


def loss_of(layers: int, rate: float) -> tuple[Callable[..., Any], Any, Any]:
    """Returns a masked language model's loss, its parameters and its batch."""
    model = Transformer(layers, rate)
    tokens = jax.random.randint(jax.random.key(0), (ROWS, LENGTH), 0, WORDS)
    mask = (tokens % 3 > 0).astype(jnp.float32)
    keys = {"dropout": jax.random.key(1)}

    def loss(params: Any, batch: Any) -> Any:
        scores: Any = model.apply(params, batch[0], rngs=keys)
        scores = jax.nn.log_softmax(scores)
        picked = jnp.take_along_axis(scores, batch[0][..., None], -1)[..., 0]
        return -(picked * batch[1]).sum() / batch[1].sum()

    return loss, model.init(jax.random.key(0), tokens), (tokens, mask)


def least(function: Callable[[], Any], times: int = 3) -> float:
    """Returns the least seconds of a few calls."""
    found: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        found.append(time.perf_counter() - begun)
    return min(found)


def measure(layers: int, rate: float) -> None:
    loss, params, batch = loss_of(layers, rate)
    leaves, tree = jax.tree.flatten((params, batch))
    data = frozenset(range(len(jax.tree.leaves(params)), len(leaves)))

    def fresh() -> Callable[..., list[Any]]:
        """Returns the loss as a function that JAX has not traced yet."""
        return lambda *given: [loss(*jax.tree.unflatten(tree, given))]

    types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    one = [
        jax.ShapeDtypeStruct((x.shape[0] // 4, *x.shape[1:]), x.dtype) if i in data else x for i, x in enumerate(types)
    ]
    trace = least(lambda: jax.make_jaxpr(fresh())(*one))
    traces = traced_twice(fresh(), types, data, MICROBATCHES)
    walk = least(lambda: related(traces))
    everything = least(lambda: handled(fresh(), types, data, MICROBATCHES))
    devices = pw.make_virtual_device_set()
    staged = pw.pipeline(loss, [devices.add_slice(devices=1) for _ in range(4)], microbatches=MICROBATCHES)
    step = pw.program(lambda p, b: jax.value_and_grad(staged)(p, b))
    first = least(lambda: jax.block_until_ready(step(params, batch)), times=1)
    print(
        f"{layers:3} layers, dropout {rate:g}: trace {trace:6.3f} s; walk {walk / trace:5.2f} of a trace; all of it "
        f"{everything / trace:5.2f} of a trace, {everything / first:6.1%} of the first call ({first:.1f} s)",
        flush=True,
    )


def main() -> None:
    for layers in (4, 12, 24):
        for rate in (0.0, 0.1):
            measure(layers, rate)


if __name__ == "__main__":
    main()
