# pyright: basic
"""A mixture of experts over several islands: the router on one slice, and each pair of experts on its own slice.

    python samples/mixture_of_experts.py --steps 5

Each token goes to its best expert, up to a capacity. Pathways inserts the transfers between the slices.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

TOKENS, WIDTH, HIDDEN, EXPERTS, EXPERTS_A_SLICE = 64, 16, 32, 4, 2
CAPACITY = 2 * TOKENS // EXPERTS
RATE = 0.05


def route(router, x):
    """Assigns each token to a position in its best expert; tokens beyond the capacity are dropped."""
    gates = jax.nn.softmax(x @ router)
    chosen = jax.nn.one_hot(gates.argmax(-1), EXPERTS)
    place = (jnp.cumsum(chosen, 0) - 1) * chosen
    slots = jax.nn.one_hot(place.sum(-1).astype(jnp.int32), CAPACITY) * (place.sum(-1, keepdims=True) < CAPACITY)
    dispatch = jnp.einsum("te,tc->tec", chosen, slots)
    combine = dispatch * (gates * chosen).sum(-1)[:, None, None]
    return jnp.einsum("tec,tw->ecw", dispatch, x), combine


def experts(weights, inputs):
    """Computes the feed-forward layers of one slice's experts; inputs are (expert, capacity, width)."""
    hidden = jax.nn.relu(jnp.einsum("ecw,ewh->ech", inputs, weights["up"]))
    return jnp.einsum("ech,ehw->ecw", hidden, weights["down"])


def combine_outputs(combine, outputs):
    return jnp.einsum("tec,ecw->tw", combine, jnp.concatenate(outputs))


def make_step(route, expert_slices, combine_outputs):
    """Makes a training step for experts and router, which learn to reproduce a target."""

    def loss(params, x, target):
        inputs, combine = route(params["router"], x)
        chunks = jnp.split(inputs, len(expert_slices))
        outputs = [run(w, c) for run, w, c in zip(expert_slices, params["experts"], chunks, strict=True)]
        return ((combine_outputs(combine, outputs) - target) ** 2).mean()

    def step(params, x, target):
        value, gradients = jax.value_and_grad(loss)(params, x, target)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), value

    return step


def init_params(seed=0):
    rng = np.random.default_rng(seed)

    def array(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    def chunk():
        return {"up": array(EXPERTS_A_SLICE, WIDTH, HIDDEN), "down": array(EXPERTS_A_SLICE, HIDDEN, WIDTH)}

    return {"router": array(WIDTH, EXPERTS), "experts": [chunk() for _ in range(EXPERTS // EXPERTS_A_SLICE)]}


def place():
    """Places the functions on slices: `data` splits the router's tokens, and each expert has a device of its slice."""
    devices = pw.make_virtual_device_set()
    data = devices.add_slice(devices=2).mesh("data")
    by_token = NamedSharding(data, P("data"))
    whole = NamedSharding(data, P())
    placed = []
    for _ in range(EXPERTS // EXPERTS_A_SLICE):
        mesh = devices.add_slice(devices=EXPERTS_A_SLICE).mesh("expert")
        by_expert = NamedSharding(mesh, P("expert"))
        placed.append(jax.jit(experts, in_shardings=by_expert, out_shardings=by_expert))
    router = jax.jit(route, in_shardings=(whole, by_token))
    return router, placed, jax.jit(combine_outputs, in_shardings=(by_token, whole), out_shardings=by_token)


def example_args():
    tokens = jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32)
    return jax.eval_shape(init_params), tokens, tokens


moe_step = pw.program(make_step(*place()), example_args=example_args, donate_argnums=0)


def train(steps):
    """Trains with Pathways and with plain JAX, and returns both losses of every step."""
    plain_step = jax.jit(make_step(route, [experts] * (EXPERTS // EXPERTS_A_SLICE), combine_outputs))
    rng = np.random.default_rng(1)
    ours = plain = init_params()
    losses = []
    for number in range(steps):
        x = rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)
        ours, loss = moe_step(ours, x, np.sin(x))
        plain, expected = plain_step(plain, x, np.sin(x))
        losses.append((float(loss), float(expected)))
        print(f"step {number:3}  loss {losses[-1][0]:.6f}  plain JAX {losses[-1][1]:.6f}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    train(parser.parse_args().steps)
