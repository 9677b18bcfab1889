"""Collectives inside computations, compared with counts by hand. The devices of the meshes are not used."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pathways.compiler.computations.collectives import Collectives, collectives_of, ring
from pathways.compiler.computations.flops import flops_of
from pathways.compiler.computations.shardy import propagate, read_signature
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import ir, make_context, parse

WORDS = (8, 4)
"""The shape of arguments that are integers."""
MESH = AbstractMesh((2, 4), ("data", "model"))


def split(*axes: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*axes))


def module_of(function: Any, *shapes: tuple[int, ...], of: Any = None, to: Any = None) -> Any:
    """Lowers a function for the devices of the mesh; `of` and `to` are the shardings of arguments and results."""
    jitted: Any = jax.jit(function, **({} if of is None else {"in_shardings": of}), out_shardings=to)
    given = [jax.ShapeDtypeStruct(shape, "int32" if shape == WORDS else "float32") for shape in shapes]
    return parse(jitted.trace(*given).lower(lowering_platforms=("cpu",)).as_text(), make_context()).operation


def count(*arguments: Any, **shardings: Any) -> Collectives | None:
    return collectives_of(module_of(*arguments, **shardings))


def test_a_product_over_a_split_dimension_is_added_up() -> None:
    """Of 8 x 16 results, a device has 4 x 16: 256 bytes, added up over four devices."""
    found = count(
        lambda x, w: x @ w, (8, 32), (32, 16), of=(split("data", "model"), split("model")), to=split("data", None)
    )
    assert found == ring("all_reduce", 4 * 16 * 4, 4) == Collectives(2 * 3 / 4 * 256, 6)


def test_an_array_that_becomes_whole_is_gathered() -> None:
    assert count(lambda x: x * 2, (8, 16), of=(split("data", "model"),), to=split()) == Collectives(7 / 8 * 512, 7)


def test_an_array_that_is_split_another_way_is_exchanged() -> None:
    found = count(lambda x: x * 2, (8, 16), of=(split(("data", "model")),), to=split(None, ("data", "model")))
    assert found == ring("all_to_all", 8 * 16 * 4 / 8, 8) == Collectives(7 / 8 * 64, 1)


def test_a_loop_counts_its_collectives_in_each_turn() -> None:
    def layers(x: Any, a: Any, b: Any) -> Any:
        return lax.scan(lambda x, _: (jnp.tanh(x @ a) @ b, None), x, None, length=5)[0]

    of = (split("data"), split(None, "model"), split("model"))
    assert count(layers, (8, 16), (16, 32), (32, 16), of=of, to=split("data")) == Collectives(
        5 * 2 * 3 / 4 * (4 * 16 * 4), 5 * 6
    )


def test_gradients_of_whole_weights_are_added_up_over_the_rows() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w))

    found = count(jax.grad(loss), (16, 16), (8, 16), of=(split(), split("data")), to=split())
    assert found == ring("all_reduce", 16 * 16 * 4, 2)


@pytest.mark.parametrize(
    ("exchange", "found"),
    [
        (lambda x: lax.psum(x, "data"), ring("all_reduce", 4 * 4 * 4, 2)),
        (lambda x: lax.psum(x, ("data", "model")), ring("all_reduce", 4 * 4 * 4, 8)),
        (lambda x: lax.all_gather(x, "model", tiled=True), Collectives(3 / 4 * (16 * 4 * 4), 3)),
        (lambda x: lax.psum_scatter(x, "model", tiled=True), Collectives(3 * (1 * 4 * 4), 3)),
        (lambda x: lax.ppermute(x, "data", [(0, 1), (1, 0)]), Collectives(4 * 4 * 4, 1)),
        (lambda x: lax.all_to_all(x, "model", 1, 0, tiled=True), Collectives(3 / 4 * (4 * 4 * 4), 1)),
        (lambda x: x * 2, Collectives()),
    ],
    ids=["add", "add over all", "gather", "scatter", "permute", "exchange", "none"],
)  # fmt: skip
def test_the_users_own_collectives_count(exchange: Any, found: Collectives) -> None:
    """A device has 4 x 4 numbers of 8 x 16."""
    inside = jax.shard_map(
        exchange, mesh=MESH, in_specs=P("data", "model"), out_specs=P("data", "model"), check_vma=False
    )
    assert count(inside, (8, 16)) == found


def test_a_module_without_a_mesh_has_none() -> None:
    assert (
        collectives_of(parse(jax.jit(jnp.sum).lower(jnp.ones(8)).as_text(), make_context()).operation) == Collectives()
    )


def test_flops_under_shard_map_are_those_of_all_devices() -> None:
    def product(x: Any, w: Any) -> Any:
        return x @ w

    inside = jax.shard_map(product, mesh=MESH, in_specs=(P("data"), P(None, "model")), out_specs=P("data", "model"))
    shapes = (8, 16), (16, 32)
    assert flops_of(module_of(inside, *shapes)) == flops_of(module_of(product, *shapes)) == 2 * 8 * 16 * 32


def looked_up(table: Any, words: Any, weights: Any) -> Any:
    return jnp.tanh(table[words] @ weights)


def test_weights_that_are_split_like_the_rows_are_gathered() -> None:
    """XLA lets the rows decide, also where `table[words]` adds a dimension to the words before it reads the table.

    Each device reads all words in its rows of the table, and the results are added up.
    """
    module = module_of(looked_up, (64, 16), WORDS, (16, 16), of=split("data"))
    words, results, weights = 8 * 4 * 4, 8 * 4 * 16 * 4, 16 * 16 * 4
    parts = ring("all_gather", words, 2), ring("all_reduce", results, 2), ring("all_gather", weights, 2)
    assert collectives_of(module) == Collectives(sum(one.bytes for one in parts), sum(one.hops for one in parts))


def test_the_rows_decide_how_a_result_is_split() -> None:
    """As by `jax.jit` on two devices, which cannot be asked here."""
    module = module_of(looked_up, (64, 16), WORDS, (16, 16), of=split("data"))
    axes = (("data", 2), ("model", 4))
    with ir.Location.unknown(module.context):
        found = propagate(module, axes, read_signature(module, axes), None)
    assert found.outs == ((("data",), (), ()),)


GROUPS = """module @f attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @other = <["data"=4]>
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {{
    %y = "stablehlo.all_reduce"(%x) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }}) {{replica_groups = {groups}}} : (tensor<16xf32>) -> tensor<16xf32>
    return %y : tensor<16xf32>
  }}
}}"""


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>", 2),
        ("dense<> : tensor<0x0xi64>", 8),
        ('#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "model">]>', 4),
    ],
    ids=["devices", "all", "axes"],
)
def test_groups_of_devices_are_read_in_each_form(groups: str, devices: int) -> None:
    try:
        module = parse(GROUPS.format(groups=groups), make_context()).operation
    except PathwaysError:  # older versions have no groups by axes
        assert "axes" in groups
        return
    assert collectives_of(module) == ring("all_reduce", 64, devices)
