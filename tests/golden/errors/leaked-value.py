# RUN: pwc compile %s
import jax

import pathways as pw

cache = []


def stage(x):
    if cache:
        x = x + cache[0]
    cache.append(x)
    return x


first = pw.program(stage, example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
first.lower(*first.example_args)
first.lower(*first.example_args)
# EXPECTED exit 3
# error[PWC0103]: program stage cannot be traced: it uses a traced value of another trace (a leaked tracer)
#   --> %s:9  in stage
#       9 | def stage(x):
#   have:  a value that an earlier trace stored in a global, an attribute or a list
#   need:  a function whose arguments and results are pytrees of arrays
#   try:   return all values from the functions of a program
