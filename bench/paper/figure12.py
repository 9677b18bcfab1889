# pyright: basic
"""Simulates the paper's Figure 12: data parallelism over two islands, whose gradients cross the network.

    python bench/paper/figure12.py

Each island computes gradients for half of the batch, sends them to the other, and updates its parameters. Compared is
one island with as many devices. The paper does not state the batch, so that several are simulated.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from models import Size, loss_of, types_of
from row import Figure, Row

import pathways as pw
from pathways.dialect.topology import PRESETS

MODELS = (
    (Size(80, 8192, 32768, 64, 32768, 512), "paper-2x512", "97.2 %, 457 GB"),
    (Size(75, 12288, 49152, 96, 32768, 512), "paper-2x1024", "about 97 %, 1,030 GB"),
)
TOKENS = (1 << 20, 1 << 21, 1 << 22)
"""Tokens of a step."""


def step_of(size, slices, rows):
    loss = loss_of(size)
    params, batch = types_of(size, rows // len(slices))

    def gradients(params, tokens):
        found = jax.grad(loss)(params, tokens)
        return jax.tree.map(lambda g: g.astype(jnp.float32), found)

    def update(params, *gradients):
        return jax.tree.map(lambda w, g, *more: (w - 0.001 * sum(more, g)).astype(w.dtype), params, *gradients)

    def parts(mesh):
        split = NamedSharding(mesh, P("x"))
        return (jax.jit(gradients, in_shardings=(split, split), out_shardings=split),
                jax.jit(update, in_shardings=split, out_shardings=split))  # fmt: skip

    islands = [parts(each.mesh("x")) for each in slices]

    @pw.program(donate_argnums=0)
    def step(params, batches):
        found = [gradients(p, b) for (gradients, _), p, b in zip(islands, params, batches, strict=True)]
        return [
            update(p, *found[n:], *found[:n]) for n, ((_, update), p) in enumerate(zip(islands, params, strict=True))
        ]

    return step.lower([params] * len(slices), [batch] * len(slices))


def simulated(size, preset, rows):
    """Returns the seconds of a step on one island and on two, and the bytes between them."""
    two = PRESETS[preset]
    two = replace(two, islands=tuple(replace(island, memory=None) for island in two.islands))
    island = two.islands[0]
    one = replace(two, islands=(replace(island, hosts=2 * island.hosts),))
    devices = pw.make_virtual_device_set()
    halves = [devices.add_slice(devices=island.size) for _ in range(2)]
    whole = step_of(size, [devices.add_slice(devices=2 * island.size)], rows).simulate(one)
    found = step_of(size, halves, rows).simulate(two)
    return whole.seconds, found.seconds, sum(link.bytes for link in found.links)


def main():
    row = Row(
        "figure12", "Data parallelism over two islands (Figure 12)",
        "64 billion parameters on two islands of 512 cores, with 457 GB a step between them, reach 97.2 % of one "
        "island of 1,024; 136 billion on two of 1,024 cores, with 1,030 GB, about 97 %",
    )  # fmt: skip
    lines = {}
    for size, preset, paper in MODELS:
        for tokens in TOKENS:
            one, both, moved = simulated(size, preset, tokens // size.context)
            what = f"{size.parameters() / 1e9:.0f}B parameters, {tokens / 1e6:.1f}M tokens a step"
            value = f"{one / both:.1%} of one island, {moved / 1e9:,.0f} GB a step, {both:.1f} s"
            print(what, value, flush=True)
            row.predicted.append(Figure(what, value, f"paper: {paper}"))
            lines.setdefault(f"{size.parameters() / 1e9:.0f}B parameters", []).append((tokens / 1e6, 100 * one / both))
    row.assumes = [
        "gradients cross as float32, all at the end of the backward pass, without overlap",
        "a link of 100 Gbit/s for each host, used in both directions at once",
        "computations reach 50 % of 61.5 Tflop/s a core; collectives by rings at 70 GB/s a core, without overlap",
        "512 tokens an example; width 8,192 with 80 layers, and 12,288 with 75",
    ]
    row.short = ["memory is not checked: temporaries of a computation that XLA splits are estimated too large",
                 "the ratio depends on the tokens of a step, which the paper does not state"]  # fmt: skip
    row.write(("million tokens a step", "% of one island", lines, False))


if __name__ == "__main__":
    main()
