"""flax.nnx: an embedding, a block of attention, a head; three stages, SGD clipped by the norm over all stages.

Not Adam: the gradient of an attention's key bias is zero but for rounding, and Adam makes steps of that noise.
"""

from collections.abc import Sequence
from typing import Any

import jax
import optax
from flax import nnx

from support.models.staged import Model, Stage, model

VOCABULARY, WIDTH, LENGTH, BATCH = 32, 16, 8, 8


class Block(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        self.before = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attend = nnx.MultiHeadAttention(num_heads=4, in_features=WIDTH, decode=False, rngs=rngs)
        self.after = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.mix = nnx.Sequential(nnx.Linear(WIDTH, 32, rngs=rngs), nnx.gelu, nnx.Linear(32, WIDTH, rngs=rngs))

    def __call__(self, x: Any) -> Any:
        x = x + self.attend(self.before(x))
        return x + self.mix(self.after(x))


def build(pins: Sequence[str] | None = None) -> Model:
    rngs: Any = nnx.Rngs(0)
    modules: list[Any] = [
        nnx.Embed(VOCABULARY, WIDTH, rngs=rngs),
        Block(rngs),
        nnx.Linear(WIDTH, VOCABULARY, rngs=rngs),
    ]
    split: Any = nnx.split
    parts = [split(m, nnx.Param, ...) for m in modules]
    stages = [_stage(graph, rest) for graph, _, rest in parts]
    x, y = jax.random.randint(jax.random.key(1), (2, BATCH, LENGTH), 0, VOCABULARY)

    def loss(logits: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, momentum=0.9))
    as_dict: Any = nnx.to_pure_dict
    params = [as_dict(p) for _, p, _ in parts]
    return model(stages, params, x, y, loss, optimizer, pins)


def _stage(graph: Any, rest: Any) -> Stage:
    def stage(params: Any, x: Any) -> Any:
        state: Any = nnx.State(params)
        return nnx.merge(graph, state, rest)(x)

    return stage


built = build()
step = built.program
