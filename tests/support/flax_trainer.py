"""Trains a small transformer on all devices that JAX finds, from its newest checkpoint. A script for a single host of
GPUs: it knows nothing of this project. Prints a line with the exact loss of each step.

    python flax_trainer.py FOLDER STEPS
"""

# pyright: basic
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, LENGTH, VOCABULARY, WIDTH = 16, 8, 32, 16


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + nn.SelfAttention(num_heads=4, qkv_features=WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(VOCABULARY, WIDTH)(tokens)
        return nn.Dense(VOCABULARY)(Block()(x))


def main(folder: Path, steps: int) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    model, optimizer = Model(), optax.adamw(1e-2)

    def place(value: jax.Array) -> NamedSharding:
        return NamedSharding(mesh, P(None, "model") if value.ndim == 2 and value.shape[1] % 2 == 0 else P())

    def initial(key: jax.Array):
        params = model.init(key, jnp.zeros((1, LENGTH), jnp.int32))
        return {"params": params, "state": optimizer.init(params), "step": jnp.zeros((), jnp.int32)}

    shardings = jax.tree.map(place, jax.eval_shape(initial, jax.random.key(0)))

    @jax.jit
    def step(train, tokens: jax.Array):
        def loss(params) -> jax.Array:
            logits: Any = model.apply(params, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, gradients = jax.value_and_grad(loss)(train["params"])
        updates, state = optimizer.update(gradients, train["state"], train["params"])
        params = jax.lax.with_sharding_constraint(optax.apply_updates(train["params"], updates), shardings["params"])
        return {"params": params, "state": state, "step": train["step"] + 1}, value

    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as checkpoints:
        if (newest := checkpoints.latest_step()) is None:
            train = jax.jit(initial, out_shardings=shardings)(jax.random.key(0))
        else:
            like = jax.tree.map(
                lambda v, s: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=s),
                jax.eval_shape(initial, jax.random.key(0)),
                shardings,
            )
            train = checkpoints.restore(newest, args=ocp.args.StandardRestore(like))
        for number in range(int(train["step"]), steps):
            rows = np.random.default_rng(number).integers(0, VOCABULARY, (BATCH, LENGTH + 1))
            tokens = jax.device_put(rows, NamedSharding(mesh, P("data")))
            train, value = step(train, tokens)
            print(number, float(value).hex(), flush=True)
            checkpoints.save(number + 1, args=ocp.args.StandardSave(train))
            checkpoints.wait_until_finished()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
