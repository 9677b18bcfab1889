# pyright: basic
"""Fine-tunes a conv net with batch-norm in three pipeline stages; the loss returns the statistics as aux.

    python samples/finetune_vision.py --steps 10

The batch is not cut, because microbatches would change its statistics. So the stages run one after another, and the
pipeline saves only memory. With `--microbatches 2` the stages overlap, but the result differs slightly from that of the
whole batch.
"""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import pathways as pw

CLASSES, BATCH, SIZE, STAGES = 4, 16, 16, 3
OPTIMIZER = optax.sgd(0.05, momentum=0.9)


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))
        return x + nn.Conv(x.shape[-1], (3, 3))(h)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(16, (3, 3))(x)
        for _ in range(6):
            x = Residual()(x)
        return nn.Dense(CLASSES)(x.mean((1, 2)))


MODEL = Net()


def loss(params, statistics, images, labels):
    """Returns the loss, and the statistics after this batch."""
    state = {"params": params, "batch_stats": statistics}
    logits, changed = MODEL.apply(state, images, mutable=["batch_stats"])
    value = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return value, changed["batch_stats"]


def make_step(loss):
    def step(params, statistics, state, images, labels):
        (value, statistics), gradients = jax.value_and_grad(loss, has_aux=True)(params, statistics, images, labels)
        updates, state = OPTIMIZER.update(gradients, state, params)
        return optax.apply_updates(params, updates), statistics, state, value

    return step


def batch(step):
    """Makes images of waves; the class is their direction."""
    rng = np.random.default_rng(step)
    labels = rng.integers(0, CLASSES, BATCH)
    y, x = np.mgrid[0:SIZE, 0:SIZE]
    angle = labels[:, None, None] * np.pi / CLASSES
    waves = np.sin(x * np.cos(angle) + y * np.sin(angle))[..., None]
    return (waves + 0.3 * rng.normal(size=(BATCH, SIZE, SIZE, 1))).astype(np.float32), labels.astype(np.int32)


def pipelined(microbatches=1):
    devices = pw.make_virtual_device_set()
    slices = [devices.add_slice(devices=1) for _ in range(STAGES)]
    return pw.pipeline(loss, slices, microbatches=microbatches, batch_argnums=(2, 3), has_aux=True, aux="mean")


def example_args():
    """Returns the types of the arguments; compilation needs no values."""
    variables = jax.eval_shape(MODEL.init, jax.random.key(0), batch(0)[0])
    params, statistics = variables["params"], variables["batch_stats"]
    return params, statistics, jax.eval_shape(OPTIMIZER.init, params), *batch(0)


train_step = pw.program(make_step(pipelined()), example_args=example_args)  # for pwc compile


def train(steps, microbatches=1, log=lambda _: None):
    """Trains with Pathways and with plain JAX, and returns both losses of every step."""
    variables = MODEL.init(jax.random.key(0), jnp.zeros((1, SIZE, SIZE, 1)))
    params, statistics = variables["params"], variables["batch_stats"]
    cut = pipelined(microbatches)
    log(cut.stages(params, statistics, *batch(0)))
    ours, plain = pw.program(make_step(cut)), jax.jit(make_step(loss))
    mine = theirs = (params, statistics, OPTIMIZER.init(params))
    losses = []
    for step in range(steps):
        *mine, found = ours(*mine, *batch(step))
        *theirs, expected = plain(*theirs, *batch(step))
        losses.append((float(found), float(expected)))
        log(f"step {step:3}  loss {losses[-1][0]:.6f}   plain jax {losses[-1][1]:.6f}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--microbatches", type=int, default=1)
    train(**vars(parser.parse_args()), log=print)
