# RUN: pwc compile %s
import jax

import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    return step(x + 1)


# EXPECTED exit 3
# error[PWC0107]: program step calls itself without end
#   --> %s:9  in step
#       9 | return step(x + 1)
#   have:  a call of step inside of itself, with arguments of the same types
#   need:  calls that end while the program is traced: whatever they depend on must be known then
#   try:   count down a static argument or a shape, or use lax.while_loop or lax.scan
