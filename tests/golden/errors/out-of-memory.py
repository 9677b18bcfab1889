# RUN: pwc compile %s --schedule gpipe --topology islands=2,devices=1,memory=24KB
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


@pw.program(example_args=([jnp.ones((16, 16))] * 2, jnp.ones((8, 16, 16))))
def step(ws, xs):
    def body(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(ws, x)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, ws), xs)[0]


# EXPECTED exit 5
# error[PWC0302]: the program does not fit the memory of island0
#   have:  24,000 bytes a device
#   need:  34,848 bytes on one device at step 26, 10.6 KiB too many:
#            24.0 KiB  activations of 8 microbatches (0, 1, 2, 3, 4, 5, 6, 7)
#             8.0 KiB  xs
#             1.0 KiB  transfer buffers
#             1.0 KiB  ws
#                32 B  constants
#   try:   --schedule 1f1b (-17.0 KiB, fits)
#          --schedule interleaved (-17.0 KiB, fits)
#          --schedule zero-bubble (-17.0 KiB, fits)
#          --schedule 1f1b --remat auto (-17.0 KiB, fits)
#          --remat auto (-13.0 KiB, fits)
#          --analyze (asks XLA for the temporaries, which are estimated here)
#          or more devices a slice, donate_argnums, islands with more memory
# error[PWC0302]: the program does not fit the memory of island1
#   --> %s:23  in loss
#       23 | x = stages[i % 2](w, x)
#   have:  24,000 bytes a device
#   need:  33,792 bytes on one device at step 23 (1F7 stage), 9.6 KiB too many:
#            23.0 KiB  activations of 8 microbatches (0, 1, 2, 3, 4, 5, 6, 7)
#             8.0 KiB  transfer buffers
#             1.0 KiB  temporaries of stage
#             1.0 KiB  ws
#   try:   --schedule 1f1b (-27.0 KiB, fits)
#          --schedule interleaved (-27.0 KiB, fits)
#          --schedule 1f1b --remat auto (-27.0 KiB, fits)
#          --schedule zero-bubble (-25.0 KiB, fits)
#          --remat auto (-13.0 KiB, fits)
#          --analyze (asks XLA for the temporaries, which are estimated here)
#          or more devices a slice, donate_argnums, islands with more memory
