# RUN: pwc compile %s
import jax

import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    return step(x + 1)


# EXPECTED exit 3
# error[PWC0107]: program step calls itself without a limit
#   --> %s:9  in step
#       9 | return step(x + 1)
#   have:  a call of step inside of itself, with arguments of the same types
#   need:  a recursion that terminates during tracing: its condition must be known at trace time
#   try:   count down a static argument or a shape, or use lax.while_loop or lax.scan
