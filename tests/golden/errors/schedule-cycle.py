# RUN: pwc compile %s --schedule %S/cycle.csv
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
# error[PWC0402]: the schedule %S/cycle.csv cannot complete: 5 actions wait for each other
#   --> %s:23  in loss
#       23 | x = stages[i % 2](w, x)
#   have:     1B0 stage (%s:23) on s1: comes after 1B1 in row 2
#          -> 1B1 stage (%s:23) on s1: comes after 1F1 in row 2
#          -> 1F1 stage (%s:23) on s1: needs a result of 0F1
#          -> 0F1 stage (%s:23) on s0: comes after 0B0 in row 1
#          -> 0B0 stage (%s:23) on s0: needs a result of 1B0
#          -> 1B0 stage (%s:23) on s1
#   need:  an order in which every action comes after the actions that it depends on
#   try:   move 1B0 to the left in row 2
