# RUN: pwc compile %s --schedule 2f2b
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

slices = pw.make_virtual_device_set()
meshes = [slices.add_slice(devices=1).mesh("x") for _ in range(2)]


def stage(w, x):
    return jnp.tanh(x @ w)


stages = [jax.jit(stage, in_shardings=NamedSharding(m, P())) for m in meshes]


def loss(ws, x):
    for i, w in enumerate(ws):
        x = stages[i % 2](w, x)
    return (x**2).mean()


@pw.program(example_args=([jnp.ones((4, 4))] * 2, jnp.ones((2, 2, 4))))
def step(ws, xs):
    def body(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(ws, x)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, ws), xs)[0]


# EXPECTED exit 2
# error[PWC0405]: there is no schedule 2f2b
#   have:  2f2b
#   need:  the name of a schedule, or a table FILE.csv
#   try:   known: program, gpipe, 1f1b, interleaved, zero-bubble
