# pyright: basic
"""Trains a small decoder-only transformer on real text, in two pipeline stages of 2 x 2 devices each.

    python samples/train_lm.py --steps 30 --schedule 1f1b

It prints the loss of every step, and the loss that plain JAX computes on one device.
"""

import argparse
import pydoc_data.topics

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

LAYERS, STAGES, WIDTH, HEADS, CONTEXT = 4, 2, 64, 4, 32
MICROBATCHES, BATCH = 4, 8
TOPICS = pydoc_data.topics.topics
TEXT = np.frombuffer("\n".join(TOPICS[k] for k in sorted(TOPICS)).encode(), np.uint8)
VOCABULARY = 256
OPTIMIZER = optax.adam(3e-3)


def attention(p, x):
    batch, time, width = x.shape
    q, k, v = (jnp.reshape(x @ p[n], (batch, time, HEADS, width // HEADS)) for n in ("q", "k", "v"))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(width // HEADS)
    scores = jnp.where(np.tril(np.ones((time, time), bool)), scores, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, time, width) @ p["o"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layers(params, x):
    for p in params["layers"]:
        x = x + attention(p, norm(x))
        x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
    return x


def first_stage(params, tokens):
    """Computes the embedding and the first layers."""
    return layers(params, params["embed"][tokens] + params["position"])


def last_stage(params, x, targets):
    """Computes the other layers, the softmax, and the mean loss of the microbatch."""
    logits = norm(layers(params, x)) @ params["unembed"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def init_params(seed=0):
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    def layer():
        square = {n: matrix(WIDTH, WIDTH) for n in ("q", "k", "v", "o")}
        return square | {"up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH)}

    first = {"embed": matrix(VOCABULARY, WIDTH), "position": matrix(CONTEXT, WIDTH)}
    last = {"unembed": matrix(WIDTH, VOCABULARY)}
    per_stage = LAYERS // STAGES
    return [stage | {"layers": [layer() for _ in range(per_stage)]} for stage in (first, last)]


def shard_params(params, mesh):
    """Returns Megatron's shardings: `model` splits columns of the first matrix of each pair, and rows of the second."""
    columns, rows, whole = (NamedSharding(mesh, s) for s in (P(None, "model"), P("model", None), P()))
    layer = {n: columns for n in ("q", "k", "v", "up")} | {"o": rows, "down": rows}
    named = {"embed": whole, "position": whole, "unembed": columns}
    return {n: [layer] * len(params["layers"]) if n == "layers" else named[n] for n in params}


def make_loss(first, last):
    """Makes the loss over all microbatches; tokens are (microbatch, batch, time + 1)."""

    def loss(params, tokens):
        def microbatch(total, tokens):
            hidden = first(params[0], tokens[:, :-1])
            return total + last(params[1], hidden, tokens[:, 1:]), None

        total, _ = jax.lax.scan(microbatch, jnp.float32(0), tokens)
        return total / MICROBATCHES

    return loss


def make_step(loss):
    def step(params, state, tokens):
        value, gradients = jax.value_and_grad(loss)(params, tokens)
        updates, state = OPTIMIZER.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    return step


def placed_stages():
    """Places each of the two stages on its own slice: `jax.jit` with virtual devices."""
    devices = pw.make_virtual_device_set()
    meshes = [devices.add_slice(tpu_devices=4).mesh(("data", "model"), (2, 2)) for _ in range(STAGES)]
    shapes = jax.eval_shape(init_params)
    batch = [NamedSharding(m, P("data")) for m in meshes]
    first = jax.jit(first_stage, in_shardings=(shard_params(shapes[0], meshes[0]), batch[0]), out_shardings=batch[0])
    last = jax.jit(last_stage, in_shardings=(shard_params(shapes[1], meshes[1]), batch[1], batch[1]))
    return first, last


def example_args():
    params = jax.eval_shape(init_params)
    tokens = jax.ShapeDtypeStruct((MICROBATCHES, BATCH, CONTEXT + 1), jnp.int32)
    return params, jax.eval_shape(OPTIMIZER.init, params), tokens


train_step = pw.program(make_step(make_loss(*placed_stages())), example_args=example_args, donate_argnums=(0, 1))


def batches(steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        starts = rng.integers(0, len(TEXT) - CONTEXT - 1, MICROBATCHES * BATCH)
        windows = np.stack([TEXT[s : s + CONTEXT + 1] for s in starts])
        yield windows.reshape(MICROBATCHES, BATCH, CONTEXT + 1).astype(np.int32)


def train(steps, schedule="program", topology=None, snapshot=None):
    """Trains with Pathways and with plain JAX, and returns both losses of every step.

    With a snapshot file, it saves every 5 steps. If a device is lost, training continues from the last snapshot.
    """
    our_step = train_step.lower(*example_args()).compile(topology, schedule=schedule)
    plain_step = jax.jit(make_step(make_loss(first_stage, last_stage)))
    params = init_params()
    state = OPTIMIZER.init(params)
    ours, plain = (params, state), (params, state)
    losses, number, data = [], 0, list(batches(steps))
    while number < steps:
        try:
            if snapshot and number % 5 == 0:
                pw.save((np.int32(number), ours), snapshot)
            *ours, loss = our_step(*ours, data[number])
            loss = float(loss)
        except pw.PathwaysError as error:
            if not snapshot or error.code != "PWC0512":
                raise
            number, ours = pw.restore((np.int32(0), (params, state)), snapshot)
            print(f"{error.diagnostic.text(error.diagnostic.title)}; on from step {number}")
            continue
        if number == len(losses):  # not a step repeated after a loss
            *plain, expected = plain_step(*plain, data[number])
            losses.append((loss, float(expected)))
        losses[number] = loss, losses[number][1]
        print(f"step {number:3}  loss {loss:.6f}  plain JAX {losses[number][1]:.6f}")
        number += 1
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--schedule", default="program", help="gpipe, 1f1b, interleaved, zero-bubble or FILE.csv")
    parser.add_argument("--topology", help="islands=3,devices=4, say; default: an island for each stage")
    parser.add_argument("--snapshot", help="a file for snapshots, to go on from when a device is lost")
    arguments = parser.parse_args()
    train(arguments.steps, arguments.schedule, arguments.topology, arguments.snapshot)
