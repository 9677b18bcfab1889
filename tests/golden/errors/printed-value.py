# RUN: pwc compile %s
import jax

import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    print(float(x.sum()))
    return -x


# EXPECTED exit 3
# error[PWC0103]: program step cannot be traced: it reads the value of an array, which is not known while the program is traced
#   --> %s:9  in step
#       9 | print(float(x.sum()))
#   have:  Abstract tracer value encountered where concrete value is expected: traced array with shape float32[]
#   need:  a function whose arguments and results are pytrees of arrays
#   try:   to print it, use jax.debug.print('{}', x); to compute with it, keep it an array, or mark the argument in static_argnums
