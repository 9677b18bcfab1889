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
# error[PWC0103]: program stage cannot be traced: it uses a value that another trace left behind
#   --> %s:9  in stage
#       9 | def stage(x):
#   have:  a traced value of an earlier trace, kept in a global, an attribute or a list
#   need:  a function of arrays that returns arrays: pytrees in, pytrees out
#   try:   return all values from the functions of a program
