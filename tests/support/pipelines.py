"""Builds pipelines to schedule: equal stages on slices, trained on microbatches, written in several styles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.schedule.arrange import UNITS
from pathways.compiler.schedule.table import Pipeline
from pathways.compiler.schedule.timeline import Precedence
from pathways.dialect.call_labels import Action

WIDTH, LENGTH, RATE = 8, 4, 0.1
jit: Any = jax.jit
Step = Callable[..., Any]


def slices(count: int, devices: int = 1) -> list[Any]:
    """Makes slices of one new set of devices."""
    made = pw.make_virtual_device_set()
    return [made.add_slice(devices=devices) for _ in range(count)]


def block(params: Any, x: Any) -> Any:
    """Applies a transformer block: attention and a multilayer perceptron, without biases."""
    q, k, v = jnp.split(x @ params["qkv"], 3, axis=-1)
    x = x + jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / np.sqrt(WIDTH)) @ v @ params["out"]
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def linear(params: Any, x: Any) -> Any:
    """Applies the smallest possible stage: one product and a tanh."""
    return jnp.tanh(x @ params)


@dataclass(frozen=True)
class Pipe:
    """A training step as a program on slices and in plain JAX, with the arguments of one step."""

    step: Step
    plain: Step
    arguments: tuple[Any, ...]

    def lowered(self) -> Any:
        return pw.program(self.step).lower(*self.arguments)


def pipe(
    style: str = "value_and_grad in scan",
    *,
    slices: int = 4,
    chunks: int = 1,
    microbatches: int = 4,
    devices: int = 1,
    stage: Step = linear,
    layers: int = 1,
    seed: int = 0,
) -> Pipe:
    """Builds a pipeline of `slices * chunks` stages of `layers` calls each; stage s is on slice s mod `slices`."""
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=devices).mesh("x") for _ in range(slices)]
    placed = [jit(stage, in_shardings=NamedSharding(m, P())) for m in meshes]
    rng = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return jnp.asarray(0.2 * rng.standard_normal(shape), jnp.float32)

    def parameters() -> Any:
        if stage is not block:
            return array(WIDTH, WIDTH)
        shapes = {
            "qkv": (WIDTH, 3 * WIDTH),
            "out": (WIDTH, WIDTH),
            "up": (WIDTH, 2 * WIDTH),
            "down": (2 * WIDTH, WIDTH),
        }
        return {name: array(*shape) for name, shape in shapes.items()}

    count = slices * chunks
    params = [[parameters() for _ in range(layers)] for _ in range(count)]
    x = array(microbatches, 2, LENGTH, WIDTH)
    on_slices = [placed[s % slices] for s in range(count)]
    write = STYLES[style]
    return Pipe(write(on_slices, microbatches), write([stage] * count, microbatches), (params, x, jnp.sin(x)))


def _loss(stages: Sequence[Step], params: Any, x: Any, y: Any) -> Any:
    for stage, own in zip(stages, params, strict=True):
        for p in own:
            x = stage(p, x)
    return ((x - y) ** 2).mean()


def _updated(params: Any, grads: Any) -> Any:
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads)


def _in_scan(stages: Sequence[Step], microbatches: int) -> Step:
    def step(params: Any, xs: Any, ys: Any) -> Any:
        def body(total: Any, xy: Any) -> Any:
            value, grads = jax.value_and_grad(lambda p: _loss(stages, p, *xy))(params)
            return jax.tree.map(jnp.add, total, grads), value

        grads, values = lax.scan(body, jax.tree.map(jnp.zeros_like, params), (xs, ys))
        return _updated(params, grads), values.mean()

    return step


def _of_scan(stages: Sequence[Step], microbatches: int) -> Step:
    def step(params: Any, xs: Any, ys: Any) -> Any:
        def total(params: Any) -> Any:
            value, _ = lax.scan(lambda t, xy: (t + _loss(stages, params, *xy), None), 0.0, (xs, ys))
            return value / microbatches

        value, grads = jax.value_and_grad(total)(params)
        return _updated(params, grads), value

    return step


def _by_hand(stages: Sequence[Step], microbatches: int) -> Step:
    def step(params: Any, xs: Any, ys: Any) -> Any:
        total, values = None, 0.0
        for m in range(microbatches):
            value, grads = jax.value_and_grad(lambda p, m=m: _loss(stages, p, xs[m], ys[m]))(params)
            total = grads if total is None else jax.tree.map(jnp.add, total, grads)
            values += value
        return _updated(params, total), values

    return step


def _of_sum(stages: Sequence[Step], microbatches: int) -> Step:
    def step(params: Any, xs: Any, ys: Any) -> Any:
        def total(params: Any) -> Any:
            return sum(_loss(stages, params, xs[m], ys[m]) for m in range(microbatches))

        value, grads = jax.value_and_grad(total)(params)
        return _updated(params, grads), value

    return step


def _checkpointed(stages: Sequence[Step], microbatches: int) -> Step:
    return _in_scan([jax.checkpoint(s) for s in stages], microbatches)


def _with_keys(stages: Sequence[Step], microbatches: int) -> Step:
    """Writes a step whose scan over microbatches carries a random key."""

    def step(params: Any, xs: Any, ys: Any) -> Any:
        def body(carry: Any, xy: Any) -> Any:
            total, key = carry
            key, own = jax.random.split(key)
            x = xy[0] + 0.1 * jax.random.normal(own, xy[0].shape)
            value, grads = jax.value_and_grad(lambda p: _loss(stages, p, x, xy[1]))(params)
            return (jax.tree.map(jnp.add, total, grads), key), value

        start = jax.tree.map(jnp.zeros_like, params), jax.random.key(0)
        (grads, _), values = lax.scan(body, start, (xs, ys))
        return _updated(params, grads), values.mean()

    return step


def _forward(stages: Sequence[Step], microbatches: int) -> Step:
    def step(params: Any, xs: Any, ys: Any) -> Any:
        return lax.map(lambda xy: _loss(stages, params, *xy), (xs, ys))

    return step


STYLES: dict[str, Callable[[Sequence[Step], int], Step]] = {
    "value_and_grad in scan": _in_scan,
    "value_and_grad of scan": _of_scan,
    "value_and_grad in a Python loop": _by_hand,
    "value_and_grad of a Python sum": _of_sum,
    "checkpointed": _checkpointed,
    "random keys": _with_keys,
    "forward only": _forward,
}


def model(slices: int, chunks: int, microbatches: int, *, split: bool = False) -> Pipeline:
    """Builds a pipeline table without a program: numbers all forward calls by microbatch, then all backward calls."""
    stages = slices * chunks
    kinds = ["I", "W"] if split else ["B"]
    actions = [Action(s, "F", m) for m in range(microbatches) for s in range(stages)]
    actions += [Action(s, k, m) for m in range(microbatches) for s in reversed(range(stages)) for k in kinds]
    rows = tuple(s % slices for s in range(stages))
    return Pipeline(tuple(f"s{i}" for i in range(slices)), rows, microbatches, {a: (i,) for i, a in enumerate(actions)})


def graph_of(pipeline: Pipeline) -> Precedence:
    waits: list[list[int]] = []
    for action in pipeline.calls:
        s, m = action.stage, action.microbatch
        back = "I" if pipeline.is_split else "B"
        needs = [Action(s - 1, "F", m)] if action.kind == "F" else [Action(s + 1, back, m), Action(s, "F", m)]
        needs = [Action(s, "I", m)] if action.kind == "W" else needs
        waits.append([pipeline.calls[a][0] for a in needs if a in pipeline.calls])
    return Precedence(waits, [pipeline.rows[a.stage] for a in pipeline.calls], [UNITS[a.kind] for a in pipeline.calls])
