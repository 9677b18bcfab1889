# RUN: pwc compile %s --schedule gpipe --topology islands=2,devices=1,memory=16KB
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

slices = pw.make_virtual_device_set()
meshes = [slices.add_slice(devices=1).mesh("x") for _ in range(2)]


def stage(w, x):
    return x @ w


stages = [jax.jit(stage, in_shardings=NamedSharding(m, P())) for m in meshes]


def loss(ws, x):
    for i, w in enumerate(ws):
        x = stages[i % 2](w, x)
    return (x**2).mean()


@pw.program(example_args=([jnp.ones((16, 16))] * 2, jnp.ones((8, 16, 16))))
def step(ws, xs):
    def body(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(ws, x)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, ws), xs)[0]


# EXPECTED exit 5
# error[PWC0302]: the program does not fit into the memory of island0
#   --> %s:23  in loss
#       23 | x = stages[i % 2](w, x)
#   have:  16,000 bytes on each device
#   need:  19,488 bytes on one device at step 27 (0B0 stage), 3.4 KiB too many:
#             8.0 KiB  xs
#             7.0 KiB  activations of 7 microbatches (1, 2, 3, 4, 5, 6, 7)
#             1.0 KiB  gradients of 1 microbatch (0)
#             1.0 KiB  temporaries of stage
#             1.0 KiB  transfer buffers
#             1.0 KiB  ws
#                32 B  constants
#   try:   --schedule 1f1b (-4.0 KiB, fits)
#          --schedule interleaved (-4.0 KiB, fits)
#          --schedule zero-bubble (-4.0 KiB, fits)
#          --schedule 1f1b --remat auto (-4.0 KiB, fits)
#          --analyze (asks XLA for the temporaries, which are estimated here)
#          or more devices per slice, donate_argnums, islands with more memory
# error[PWC0302]: the program does not fit into the memory of island1
#   --> %s:23  in loss
#       23 | x = stages[i % 2](w, x)
#   have:  16,000 bytes on each device
#   need:  18,432 bytes on one device at step 24 (1B0 stage), 2.4 KiB too many:
#             7.0 KiB  activations of 7 microbatches (1, 2, 3, 4, 5, 6, 7)
#             7.0 KiB  transfer buffers
#             2.0 KiB  gradients of 1 microbatch (0)
#             1.0 KiB  temporaries of stage
#             1.0 KiB  ws
#   try:   --schedule 1f1b (-13.0 KiB, fits)
#          --schedule interleaved (-13.0 KiB, fits)
#          --schedule 1f1b --remat auto (-13.0 KiB, fits)
#          --schedule zero-bubble (-9.0 KiB, fits)
#          --analyze (asks XLA for the temporaries, which are estimated here)
#          or more devices per slice, donate_argnums, islands with more memory
