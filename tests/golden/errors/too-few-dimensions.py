# RUN: pwc compile %s
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
double = jax.jit(lambda x: jax.tree.map(lambda v: 2 * v, x), in_shardings=NamedSharding(mesh, P("x")))


@pw.program(example_args=([1.0, 2.0],))
def step(x):
    return double(x)


# EXPECTED exit 3
# error[PWC0209]: the argument x[0] has fewer dimensions than its sharding
#   --> %s:14  in step
#       14 | return double(x)
#   have:  0 dimensions, sharded as P('x',)
#   need:  at least 1 dimensions
#   try:   shorten the PartitionSpec: P() for a scalar; a list is a pytree of scalars: np.array makes it one array
