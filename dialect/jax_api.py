# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Exports JAX's public functions as `Any`, because JAX's own type stubs are partial and a type checker would reject
correct code. The front ends, the API and the runtime import them from here.

It must not contain private names of JAX.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.core as jax_core
import jax.export
import jax.numpy as jnp
import jax.sharding

JaxArray = object if TYPE_CHECKING else jax.Array
"""`jax.Array` as a base class. Subclasses declare its fields and methods again."""
checkpoint: Any = jax.checkpoint
config: Any = jax.config
debug_infs: Any = jax.debug_infs
debug_nans: Any = jax.debug_nans
device_put: Any = jax.device_put
eval_shape: Any = jax.eval_shape
enable_x64: Any = jax.enable_x64
export: Any = jax.export
jit: Any = jax.jit
get_mesh: Any = jax.sharding.get_mesh
key_data: Any = jax.random.key_data
make_jaxpr: Any = jax.make_jaxpr
make_user_context: Any = jax.make_user_context
new_ref: Any = jax.new_ref
numpy: Any = jnp
optimization_barrier: Any = jax.lax.optimization_barrier
random: Any = jax.random
typeof: Any = jax.typeof
value_and_grad: Any = jax.value_and_grad
dtypes: Any = jax.dtypes
devices: Any = jax.devices
lax: Any = jax.lax
local_devices: Any = jax.local_devices
set_mesh: Any = jax.set_mesh
transfer_guard: Any = jax.transfer_guard
transfer_guard_device_to_device: Any = jax.transfer_guard_device_to_device
transfer_guard_host_to_device: Any = jax.transfer_guard_host_to_device
tree_util: Any = jax.tree_util
Ref: Any = jax.Ref
ShapeDtypeStruct: Any = jax.ShapeDtypeStruct
ShapedArray: Any = jax_core.ShapedArray
Tracer: Any = jax_core.Tracer
JaxRuntimeError: type[Exception] = jax.errors.JaxRuntimeError
