# RUN: pwc compile %s --topology islands=2,devices=4 --placement %s:mine
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.placement import Binding, Placement

slices = pw.make_virtual_device_set()
one, two = (slices.add_slice(devices=2).mesh("x") for _ in range(2))
first, second = (jax.jit(jnp.sin, in_shardings=NamedSharding(m, P("x"))) for m in (one, two))


@pw.program(example_args=(jax.ShapeDtypeStruct((8,), "float32"),))
def step(x):
    return second(first(x))


def mine(graph, topology):
    """Everything on the first two devices of the first island, and one slice too small."""
    bindings = {request.symbol: Binding("island0", (0, 1)) for request in graph.graph["slices"]}
    return Placement(bindings | {"s1": Binding("island0", (1,))}, {})


# EXPECTED exit 3
# error[PWC0305]: placement %s:mine returned an invalid placement
#   --> %s:11  in <genexpr>
#       11 | one, two = (slices.add_slice(devices=2).mesh("x") for _ in range(2))
#   have:  s1 on devices (1,) (slice 2 of 2)
#   need:  2 different devices
#   try:   correct the value that place(graph, topology) returns
# error[PWC0305]: placement %s:mine returned an invalid placement
#   --> %s:11  in <genexpr>
#       11 | one, two = (slices.add_slice(devices=2).mesh("x") for _ in range(2))
#   have:  s0 and s1 on device 1 of island0 (slice 2 of 2)
#   need:  disjoint devices
#   try:   correct the value that place(graph, topology) returns
# note: the IR before place is saved; this command reproduces the error: pwc opt TMP/02.shard.mlir '--pass-pipeline=place{policy=%s:mine}' --topology=TMP/topology.toml
