# RUN: pwc compile %s --topology islands=2,devices=4 --layout "embed block | head"
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

slices = pw.make_virtual_device_set()


def embed(x):
    return jnp.sin(x)


def head(x):
    return jnp.cos(x)


meshes = [slices.add_slice(devices=2).mesh("x") for _ in range(2)]
stages = [jax.jit(f, in_shardings=NamedSharding(m, P("x"))) for f, m in zip((embed, head), meshes, strict=True)]


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    for stage in stages:
        x = stage(x)
    return x


# EXPECTED exit 3
# error[PWC0308]: the layout embed block | head does not match the program
#   have:  3 stages
#   need:  2, one per slice: embed head
#   try:   one item per slice in the order of first calls; FUNCTION*COUNT for equal slices; | separates islands
