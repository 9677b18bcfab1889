# pyright: basic
"""Compares small flax models in four stages by `pw.pipeline` with plain `jax.jit`, accumulated over the same batches.

    python bench/small_models.py

The models are like GPT-2, BERT, ViT and Llama: four layers of width 64, on four one-device slices, with four
microbatches and Adam. Three times are measured: the first call, from the Python function to its results; the same in a
later process, where JAX's cache folder has the code; and a step after warm-up. All are compared with plain jit without
a cache, and with a limit. The limit of the first call and of a step is bare PJRT (`bare_plan.py`). It compiles the
plan's modules on all cores, and makes the plan's launches and copies. The limit of a first call with code in the cache
is plain jit's with its own cache: it traces and lowers one function, and we trace the loss twice more. Each way runs in
its own process, one after another in rotation, and medians are compared. All ways must end with the same loss.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from any_model import accumulated, arrays, make_step
from bare_plan import BarePlan

import pathways as pw
from pathways.compiler.pass_manager import Options

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = 4, 64, 4, 256, 32, 8
STAGES, MICROBATCHES, STEPS = 4, 4, 25
attention: Callable[..., nn.Module] = nn.MultiHeadDotProductAttention


class PreNormLayer(nn.Module):
    """A layer as in GPT-2 and ViT: norms before attention, which is causal or not, and before the perceptron."""

    is_causal: bool

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0]) if self.is_causal else None
        x = x + attention(HEADS)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class PostNormLayer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(x + attention(HEADS)(x))
        return nn.LayerNorm()(x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(x))))


def rotated(x):
    """Rotates pairs of features of each head by their position."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angles)[None, :, None, :] for f in (jnp.cos, jnp.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


class GatedLayer(nn.Module):
    """A layer as in Llama: norms of squares, rotated positions, gated linear units."""

    @nn.compact
    def __call__(self, x):
        h = nn.RMSNorm()(x)
        q, k, v = (nn.DenseGeneral((HEADS, WIDTH // HEADS), use_bias=False, name=n)(h) for n in "qkv")
        h = nn.dot_product_attention(rotated(q), rotated(k), v, mask=nn.make_causal_mask(x[..., 0]))
        x = x + nn.DenseGeneral(WIDTH, axis=(-2, -1), use_bias=False)(h)
        h = nn.RMSNorm()(x)
        gate, up = (nn.Dense(3 * WIDTH, use_bias=False, name=n)(h) for n in ("gate", "up"))
        return x + nn.Dense(WIDTH, use_bias=False)(nn.silu(gate) * up)


def stacked(layer, x, **options):
    for i in range(LAYERS):
        x = layer(name=f"layer_{i}", **options)(x)
    return x


class Gpt2(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(VOCABULARY, WIDTH)
        x = embed(tokens) + nn.Embed(LENGTH, WIDTH)(jnp.arange(tokens.shape[1]))
        return embed.attend(nn.LayerNorm()(stacked(PreNormLayer, x, is_causal=True)))


class Bert(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, WIDTH)(tokens) + nn.Embed(LENGTH, WIDTH)(jnp.arange(tokens.shape[1]))
        x = stacked(PostNormLayer, nn.LayerNorm()(x))
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(nn.gelu(nn.Dense(WIDTH)(x))))


class Vit(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.Conv(WIDTH, (4, 4), strides=(4, 4))(images).reshape(images.shape[0], -1, WIDTH)
        x = x + self.param("positions", nn.initializers.normal(0.02), (x.shape[1], WIDTH))
        return nn.Dense(10)(nn.LayerNorm()(stacked(PreNormLayer, x, is_causal=False)).mean(1))


class Llama(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = stacked(GatedLayer, nn.Embed(VOCABULARY, WIDTH)(tokens))
        return nn.Dense(VOCABULARY, use_bias=False)(nn.RMSNorm()(x))


MODELS = {"GPT-2": Gpt2, "BERT": Bert, "ViT": Vit, "Llama": Llama}


def prepared(name):
    """Returns the loss of a model, the types of its parameters, and a batch."""
    model, rng = MODELS[name](), np.random.default_rng(0)
    if name == "ViT":
        batch = rng.standard_normal((BATCH, 16, 16, 3)).astype(np.float32), rng.integers(0, 10, BATCH, np.int32)
    else:
        tokens = rng.integers(0, VOCABULARY, (BATCH, LENGTH + 1), np.int32)
        batch = (tokens[:, :-1], tokens[:, 1:] if name in ("GPT-2", "Llama") else tokens[:, :-1])

    def loss(params, batch):
        logits = model.apply(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    return loss, jax.eval_shape(model.init, jax.random.key(0), batch[0]), batch


def bare_step(program, arguments):
    """Returns a function like a training step, which runs its plan by bare PJRT, and the seconds of the compilation."""
    plan = program.lower(*arguments).compiled(None, Options()).plan()
    bare = BarePlan(plan, os.cpu_count())
    state, batch = jax.tree.leaves(arguments[:2]), jax.tree.leaves(arguments[2])
    ports = plan.inputs
    given = [bare.array(port, value) for port, value in zip(ports[len(state) :], batch, strict=True)]
    known = [bare.array(port, value) for port, value in zip(ports, state, strict=False)]
    ends = zip(ports[: len(state)], plan.results, strict=False)
    moved = [i for i, (taken, made) in enumerate(ends) if taken.island != made.island]

    def step(*_):
        nonlocal known
        *known, value = bare([*known, *given])
        for i in moved:
            known[i] = bare.array(ports[i], known[i])
        return known, (), value

    return step, bare.compile_seconds


def way(name, kind):
    """Calls a training step in this process, and prints the seconds of its first call and of later ones.

    `kind`: `ours`, `jit` or `bare`, whose first call is XLA's compilation alone.
    """
    loss, shapes, batch = prepared(name)
    optimizer = optax.adamw(1e-3)
    params = arrays(shapes)
    state = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), jax.eval_shape(optimizer.init, shapes))
    if kind != "jit":
        devices = pw.make_virtual_device_set()
        slices = [devices.add_slice(devices=1) for _ in range(STAGES)]
        cut = pw.pipeline(loss, slices, microbatches=MICROBATCHES)
        run = pw.program(make_step(jax.value_and_grad(cut), optimizer), donate_argnums=(0, 1))
    else:
        run = jax.jit(make_step(accumulated(loss, MICROBATCHES), optimizer), donate_argnums=(0, 1))
    times = []
    if kind == "bare":
        run, compile_seconds = bare_step(run, (params, state, batch))
    for _ in range(STEPS):
        begin = time.perf_counter()
        params, state, value = run(params, state, batch)
        jax.tree.map(lambda x: x.block_until_ready(), (params, state, value))
        times.append(time.perf_counter() - begin)
    first = compile_seconds if kind == "bare" else times[0]
    print(json.dumps({"first": first, "step": statistics.median(times[5:]), "loss": float(value)}))


def times_of(name, kind, cache=""):
    """Runs one way in a new process, with a cache folder or without a cache; returns its seconds and its last loss."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PATHWAYS_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    command = [sys.executable, __file__, "--way", name, "--kind", kind]
    more = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else {}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment | more)
    return json.loads(done.stdout.splitlines()[-1])


def measure(rounds):
    """Returns seconds by what is measured: ours, and those of accumulated `jax.jit`, or of bare PJRT."""
    rows = {}
    for name in MODELS:
        found = {"ours": [], "jit": [], "bare": [], "ours again": [], "jit again": []}
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("jit", "ours"):
                times_of(name, kind, cache)  # fills the cache
            for _ in range(rounds):
                for kind in ("jit", "ours", "bare"):
                    found[kind].append(times_of(name, kind))
                for kind in ("jit", "ours"):
                    found[f"{kind} again"].append(times_of(name, kind, cache))
        losses = [f["loss"] for ways in found.values() for f in ways]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-4)
        first, step = ({w: statistics.median(f[key] for f in found[w]) for w in found} for key in ("first", "step"))
        peer = "accumulated jit"
        rows[f"{name}: the first call"] = {"ours": first["ours"], peer: first["jit"]}
        rows[f"{name}: the first call, and its limit"] = {"ours": first["ours"], "XLA alone": first["bare"]}
        cached = f"{name}: the first call, with code in the cache"
        rows[cached] = {"ours": first["ours again"], peer: first["jit"]}
        rows[f"{cached}, and its limit"] = {"ours": first["ours again"], "jit with its cache": first["jit again"]}
        rows[f"{name}: a step"] = {"ours": step["ours"], peer: step["jit"]}
        rows[f"{name}: a step, and its limit"] = {"ours": step["ours"], "bare PJRT": step["bare"]}
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", default="")
    parser.add_argument("--kind", choices=("ours", "jit", "bare"), default="ours")
    o = parser.parse_args()
    if o.way:
        way(o.way, o.kind)
        return
    for name, ways in measure(o.rounds).items():
        (ours, other), peer = ways.values(), list(ways)[1]
        print(f"{name:44}{1e3 * ours:10.1f} ms, {peer:15} {1e3 * other:8.1f} ms: {ours / other:.2f}x")


if __name__ == "__main__":
    main()
