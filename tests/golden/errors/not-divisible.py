# RUN: pwc compile %s
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=8).mesh(("batch", "model"), (2, 4))
layer = jax.jit(lambda x, w: x @ w, in_shardings=(NamedSharding(mesh, P("batch")), NamedSharding(mesh, P("model"))))


@pw.program(example_args=(jax.ShapeDtypeStruct((5, 6), "float32"), jax.ShapeDtypeStruct((6, 3), "float32")))
def step(x, w):
    return layer(x, w)


# EXPECTED exit 3
# error[PWC0203]: the argument x cannot be split evenly
#   --> %s:14  in step
#       14 | return layer(x, w)
#   have:  dimension 0 of [5, 6] is 5, over batch = 2 parts: 5 mod 2 = 1; 6 is divisible
#   need:  every dimension a multiple of the number of its shards
#   try:   pad the dimension, or leave it unsharded
# error[PWC0203]: the argument w cannot be split evenly
#   --> %s:14  in step
#       14 | return layer(x, w)
#   have:  dimension 0 of [6, 3] is 6, over model = 4 parts: 6 mod 4 = 2; 8 is divisible
#   need:  every dimension a multiple of the number of its shards
#   try:   pad the dimension, or leave it unsharded
