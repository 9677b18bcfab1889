# RUN: pwc compile %s --schedule %S/wrong.csv
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


# EXPECTED exit 3
# error[PWC0403]: %S/wrong.csv is not a schedule of this program
#   --> %S/wrong.csv:2
#       2 | ,1F0,1B0,1F7,1X1
#   have:  '1X1' in column 5
#   need:  cells like 2F3 (stage, F, B, I or W, microbatch), or empty
#   try:   `pwc compile ... --schedule 1f1b --emit-schedule s.csv` writes a table that you can edit
