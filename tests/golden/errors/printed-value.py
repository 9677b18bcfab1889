# RUN: pwc compile %s
import jax

import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    print(float(x.sum()))
    return -x


# EXPECTED exit 3
# error[PWC0103]: program step cannot be traced: it asks for the value of an array, which is not there while it is traced
#   --> %s:9  in step
#       9 | print(float(x.sum()))
#   have:  Abstract tracer value encountered where concrete value is expected: traced array with shape float32[]
#   need:  a function of arrays that returns arrays: pytrees in, pytrees out
#   try:   to see it, jax.debug.print('{}', x); to compute with it, leave it an array, or mark the argument in static_argnums
