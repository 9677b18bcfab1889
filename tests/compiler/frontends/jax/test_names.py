"""Tests the names of jits and maps in plans and messages."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pathways.compiler.frontends.jax.names import call_name

any_jax: Any = jax
MESH = Mesh(np.array(jax.devices()[:1]), ("a",))


def scale(x: Any) -> Any:
    return 2 * x


def same(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (any_jax.jit(scale), "scale"),
        (any_jax.shard_map(scale, mesh=MESH, in_specs=P("a"), out_specs=P("a")), "scale"),
        (any_jax.shard_map(same, mesh=MESH, in_specs=P("a"), out_specs=P("a")), "same"),
        (any_jax.pmap(scale, devices=jax.devices()[:1]), "scale"),
        (any_jax.pmap(same, devices=jax.devices()[:1]), "shard_map"),
        (lambda x: any_jax.lax.cond(x[0, 0] > 0, scale, same, x), "cond"),
    ],
    ids=["jit", "shard_map", "empty shard_map", "pmap", "empty pmap", "cond"],
)
def test_a_call_has_the_name_of_the_users_function_or_of_its_kind(call: Any, name: str) -> None:
    assert call_name(any_jax.make_jaxpr(call)(jnp.ones((1, 4))).eqns[-1]) == name


def test_a_map_of_an_unknown_function_has_the_name_of_its_kind() -> None:
    """JAX states no function, and no equation inside has a line of the user."""
    body = SimpleNamespace(constvars=[], invars=[], eqns=[], outvars=[])
    eqn: Any = SimpleNamespace(params={"jaxpr": body})
    assert call_name(eqn) == "shard_map"
