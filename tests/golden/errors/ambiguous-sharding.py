# RUN: pwc compile %s
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

devices = pw.make_virtual_device_set().add_slice(devices=4).devices
mesh = Mesh(np.array(devices).reshape(2, 2), ("batch", "model"), axis_types=(AxisType.Explicit,) * 2)


@pw.program(example_args=(jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((16, 8), "float32")))
def step(x, w):
    x = jax.device_put(x, NamedSharding(mesh, P("batch", "model")))
    w = jax.device_put(w, NamedSharding(mesh, P("model", None)))
    return x @ w


# EXPECTED exit 3
# error[PWC0206]: the operands do not determine the sharding of a result
#   --> %s:17  in step
#       17 | return x @ w
#   have:  Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please specify the output sharding via the `out_sharding` parameter. Got lhs_contracting_spec=('model',) and rhs_contracting_spec=('model',)
#   need:  on an explicit mesh: operands whose shardings allow one result sharding only, or out_sharding=
#   try:   out_sharding=NamedSharding(mesh, SPEC), with SPEC one of
#          P('batch', None): an all-reduce over model, 128 bytes a device
#          P('batch', 'model'): a reduce-scatter over model, 64 bytes a device
