# RUN: pwc compile %s
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=8).mesh(("batch", "model"), (2, 4))


@pw.program(example_args=(jax.ShapeDtypeStruct((8, 8), "float32"),))
def step(x):
    return jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("bath"), out_specs=P("batch"))(x)


# EXPECTED exit 3
# error[PWC0205]: bath is not an axis of the mesh
#   --> %s:13  in step
#       13 | return jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("bath"), out_specs=P("batch"))(x)
#   have:  "bath"
#   need:  one of batch, model
#   try:   did you mean "batch"?
