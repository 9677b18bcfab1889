"""Tests how shardings of JAX are read: the mesh axes that split each dimension."""

from typing import Any

import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.frontends.jax.meshes import sharding_from_jax

MESH = pw.make_virtual_device_set().add_slice(devices=4).mesh(("a", "b"), (2, 2))


@pytest.mark.parametrize(
    ("spec", "dims"),
    [
        (P(), ((), ())),
        (P("a"), (("a",), ())),
        (P(None, "b"), ((), ("b",))),
        (P("b", "a"), (("b",), ("a",))),
        (P(("a", "b")), (("a", "b"), ())),
        (P(None, ("b", "a")), ((), ("b", "a"))),
        (P(P.UNCONSTRAINED, "a"), ((), ("a",))),
    ],
)
def test_each_dimension_is_split_over_the_axes_that_the_spec_names(spec: Any, dims: Any) -> None:
    mesh, found = sharding_from_jax(NamedSharding(MESH, spec), 2, "a value", None)
    assert found == dims
    assert mesh.spec.axes == (("a", 2), ("b", 2)) and mesh.spec.devices == (0, 1, 2, 3)
