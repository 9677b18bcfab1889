# pyright: basic
"""Compares a flax transformer by `pw.pipeline` on one-device slices with plain `jax.jit` of the same step, in one run.

    python bench/any_model.py                       # 90M parameters: 12 layers, width 768, vocabulary 8,192
    python bench/any_model.py --first --layers 24   # what the first call takes: lower, compile, load
    python bench/any_model.py --first --layers 24 --scan
    MALLOC_MMAP_THRESHOLD_=1048576 python bench/any_model.py   # glibc keeps nothing of what is freed

The first command prints the time of a step after warm-up, for each way in rotation. It also prints the memory that the
process holds over the steps, next to the memory that the plan states. This memory must stay constant. Memory above that
of the plan belongs to the allocator. `accumulated` is plain `jax.jit` that does the same microbatches one after
another, in a loop. Its additional time over plain `jax.jit` is the price of microbatches: each reads all weights and
adds to all gradients. Each way runs in its own process, so that none holds another's memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

import pathways as pw

MIB = 1 << 20


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(max(1, self.width // 64))(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    layers: int
    width: int
    vocabulary: int
    scan: bool

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        if self.scan:
            turns = nn.scan(
                lambda block, x, _: (block(x), None),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = turns(Block(self.width, name="blocks"), x, None)
        else:
            for i in range(self.layers):
                x = Block(self.width, name=f"block_{i}")(x)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))


def make_step(value_and_grad, optimizer):
    def step(params, state, tokens):
        value, gradients = value_and_grad(params, tokens)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


def accumulated(loss, microbatches):
    """Returns a function for the loss and gradients that computes one microbatch after another."""

    def value_and_grad(params, batch):
        def one(sums, part):
            return jax.tree.map(jax.numpy.add, sums, jax.value_and_grad(loss)(params, part)), None

        parts = jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(jax.numpy.zeros_like, (jax.eval_shape(loss, params, first), params))
        return jax.tree.map(lambda x: x / microbatches, jax.lax.scan(one, zeros, parts)[0])

    return value_and_grad


def resident():
    """Returns the bytes that this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def prepared(o):
    model = Transformer(o.layers, o.width, o.vocabulary, o.scan)
    tokens = np.random.default_rng(0).integers(0, o.vocabulary, (o.batch, o.length)).astype(np.int32)

    def loss(params, tokens):
        logits: Any = model.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4))
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)
    return loss, optimizer, shapes, tokens


def arrays(shapes):
    """Makes parameters with NumPy, so that no way starts with memory left by another library."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda s: (0.02 * rng.standard_normal(s.shape)).astype(s.dtype), shapes)


def way(o):
    """Runs one way: its first call, then steps on command. Prints a line of JSON for each."""
    loss, optimizer, shapes, tokens = prepared(o)
    state = jax.eval_shape(optimizer.init, shapes)
    stated = 0
    before = resident()
    begin = time.perf_counter()
    if o.way != "ours":
        plain = o.way == "plain"
        step = make_step(jax.value_and_grad(loss) if plain else accumulated(loss, o.microbatches), optimizer)
        run = jax.jit(step, donate_argnums=(0, 1)).lower(shapes, state, tokens).compile()
        found: Any = run.memory_analysis()
        stated = found.argument_size_in_bytes + found.temp_size_in_bytes  # results reuse the memory of arguments
    else:
        devices = pw.make_virtual_device_set()
        slices = [devices.add_slice(devices=1) for _ in range(o.stages)]
        cut = pw.pipeline(loss, slices, microbatches=o.microbatches)
        program = pw.program(make_step(jax.value_and_grad(cut), optimizer), donate_argnums=(0, 1))
        run = program.lower(shapes, state, tokens).compile(schedule=o.schedule)
        stated = sum(run.memory_analysis(i).peak_memory_in_bytes for i in run.plan.topology.names) if not o.first else 0
    took = time.perf_counter() - begin
    print(json.dumps({"first": took, "stated": stated, "before": before}), flush=True)
    if o.first:
        return
    params = arrays(shapes)
    state = jax.tree.map(np.zeros_like, jax.tree.map(lambda s: np.empty(s.shape, s.dtype), state))
    for _ in sys.stdin:
        begin = time.perf_counter()
        params, state, value = run(params, state, tokens)
        value = float(value)
        jax.tree.map(lambda x: x.block_until_ready(), params)
        print(json.dumps({"seconds": time.perf_counter() - begin, "loss": value, "held": resident()}), flush=True)


def child(o, name):
    arguments = [f"--{k}={v}" for k, v in vars(o).items() if k not in ("way", "scan", "first", "steps")]
    flags = [f"--{k}" for k in ("scan", "first") if getattr(o, k)]
    command = [sys.executable, __file__, f"--way={name}", *arguments, *flags]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process, ask=True):
    if ask:
        process.stdin.write("\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare_first(o):
    """Compares first calls in alternating order, so that neither way always has the quieter machine."""
    took = {"accumulated": [], "ours": [], "plain": []}
    for turn in range(o.steps):
        for name in sorted(took, reverse=bool(turn % 2)):
            process = child(o, name)
            took[name].append(told(process, ask=False)["first"])
            process.wait()
    sums, ours, plain = (statistics.median(found) for found in took.values())
    what = f"{o.layers} layers{' in a scan' * o.scan}, {o.stages} stages"
    print(f"first call, {what}: {ours:.1f} s, {ours / sums:.2f}x plain jit accumulated over the same microbatches "
          f"({sums:.1f} s), {ours / plain:.2f}x plain jit ({plain:.1f} s)")  # fmt: skip


def compare_steps(o):
    ways = {name: child(o, name) for name in ("plain", "accumulated", "ours")}
    first = {name: told(p, ask=False) for name, p in ways.items()}
    seconds = {name: [] for name in ways}
    held = {name: [] for name in ways}
    for step in range(o.steps):
        said = {name: told(p) for name, p in ways.items()}
        for name, found in said.items():
            seconds[name].append(found["seconds"])
            held[name].append(found["held"])
        if step in (0, 4) or step % 10 == 9:
            line = "; ".join(
                f"{n} {f['seconds']:.2f} s, {f['held'] / MIB:.0f} MiB, {f['loss']:.5f}" for n, f in said.items()
            )
            print(f"step {step + 1}: {line}", flush=True)
    for process in ways.values():
        if process.stdin is not None:
            process.stdin.close()
        process.wait()
    plain, sums, ours = (statistics.median(seconds[n][2:]) for n in ways)
    print(f"a step: ours {ours:.2f} s, plain jit {plain:.2f} s: {ours / plain:.2f}x (bar 1.15)")
    print(f"plain jit, accumulated over {o.microbatches} microbatches: {sums:.2f} s, ours {ours / sums:.2f}x of that")
    late = held["ours"][len(held["ours"]) // 2 :]
    print(f"held over the second half of the steps: {min(late) / MIB:.0f} to {max(late) / MIB:.0f} MiB")
    for name in ways:
        room = first[name]["stated"] + first[name]["before"]
        most = max(held[name])
        bar = " (bar 1.3)" if name == "ours" else ""
        print(f"{name}: stated, with what the process had, {room / MIB:.0f} MiB; held at most {most / room:.2f}x{bar}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--vocabulary", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=33)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--way", default="")
    o = parser.parse_args()
    o.width = o.width or (64 if o.first else 768)
    o.vocabulary = o.vocabulary or (256 if o.first else 8192)
    o.steps = o.steps or (3 if o.first else 50)
    if o.way:
        way(o)
    elif o.first:
        compare_first(o)
    else:
        compare_steps(o)
