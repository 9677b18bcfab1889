# pyright: basic
"""Trains an unmodified flax transformer in pipeline stages.

    python samples/pipeline_any_model.py --layers 8 --stages 4 --schedule 1f1b
    python samples/pipeline_any_model.py --scan          # the layers are one loop over stacked parameters

It prints the stages of the model, the loss of every step, and the loss that plain JAX computes on one device.
"""

import argparse
import pydoc_data.topics

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import pathways as pw

WIDTH, HEADS, CONTEXT, BATCH, MICROBATCHES, VOCABULARY = 32, 2, 16, 8, 4, 256
TOPICS = pydoc_data.topics.topics
TEXT = np.frombuffer("\n".join(TOPICS[k] for k in sorted(TOPICS)).encode(), np.uint8)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(HEADS)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    layers: int
    scan: bool

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, WIDTH)(tokens)
        if self.scan:
            turns = nn.scan(
                lambda block, x, _: (block(x), None),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = turns(Block(name="blocks"), x, None)
        else:
            for i in range(self.layers):
                x = Block(name=f"block_{i}")(x)
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(x))


def make_loss(model):
    def loss(params, tokens):
        logits = model.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss


def make_step(loss):
    """Makes a training step, written as for one device."""

    def train_step(params, state, tokens):
        value, gradients = jax.value_and_grad(loss)(params, tokens)
        updates, state = OPTIMIZER.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return train_step


def batch(step):
    starts = np.random.default_rng(step).integers(0, len(TEXT) - CONTEXT - 1, BATCH)
    return np.stack([TEXT[s : s + CONTEXT + 1] for s in starts]).astype(np.int32)


def pipelined(model, stages):
    devices = pw.make_virtual_device_set()
    slices = [devices.add_slice(devices=1) for _ in range(stages)]
    return pw.pipeline(make_loss(model), slices, microbatches=MICROBATCHES)  # the only line that cuts the model


def example_args():
    """Returns the types of the arguments; compilation needs no values."""
    params = jax.eval_shape(MODEL.init, jax.random.key(0), batch(0)[:, :-1])
    return params, jax.eval_shape(OPTIMIZER.init, params), batch(0)


MODEL = Transformer(8, scan=False)
train_step = pw.program(make_step(pipelined(MODEL, 4)), example_args=example_args)  # for pwc compile


def train(steps, layers=8, stages=4, scan=False, schedule="1f1b", log=lambda _: None):
    """Trains with Pathways and with plain JAX, and returns both losses of every step."""
    model = Transformer(layers, scan)
    params = model.init(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32))
    state = OPTIMIZER.init(params)
    loss = pipelined(model, stages)
    log(loss.stages(params, batch(0)))

    ours = pw.program(make_step(loss)).lower(params, state, batch(0)).compile(schedule=schedule)
    plain = jax.jit(make_step(make_loss(model)))
    mine, theirs, losses = (params, state), (params, state), []
    for step in range(steps):
        *mine, found = ours(*mine, batch(step))
        *theirs, expected = plain(*theirs, batch(step))
        losses.append((float(found), float(expected)))
        log(f"step {step:3}  loss {losses[-1][0]:.6f}   plain jax {losses[-1][1]:.6f}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--schedule", default="1f1b")
    train(**vars(parser.parse_args()), log=print)
