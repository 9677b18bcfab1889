# RUN: pwc compile %s
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

slices = pw.make_virtual_device_set()
actor, learner = slices.add_slice(devices=2).mesh("x"), slices.add_slice(devices=2).mesh("x")
both = jax.jit(jnp.add, in_shardings=(NamedSharding(actor, P("x")), NamedSharding(learner, P("x"))))


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"), jax.ShapeDtypeStruct((8,), "float32")))
def step(x, y):
    return both(x, y)


# EXPECTED exit 3
# error[PWC0204]: the call of add names devices of several slices
#   --> %s:16  in step
#       16 | return both(x, y)
#   have:  shardings on slice# (%s:10), slice# (%s:10)
#   need:  one slice for each computation
#   try:   use one slice, or split it and move the value with jax.device_put(x, sharding)
