# RUN: pwc compile %s
import jax

import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    return x if x.sum() > 0 else -x


# EXPECTED exit 3
# error[PWC0103]: program step cannot be traced: it uses the value of an array to decide what to do
#   --> %s:9  in step
#       9 | return x if x.sum() > 0 else -x
#   have:  Attempted boolean conversion of traced array with shape bool[].
#   need:  a function whose arguments and results are pytrees of arrays
#   try:   use jnp.where or lax.cond inside a placed function, or mark the argument in static_argnums
