"""Shardy's MPMD dialect is found in jaxlib, and a jaxlib without it is refused with a code."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pathways.dialect import shardy_mpmd
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import ir, make_context, parse

MODULE = """
module @alone attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: !mpmd.mesh_tensor<"m0", tensor<4xf32>, sharding=<@mesh, [{"x"}]>>)
      -> !mpmd.mesh_tensor<"m1", tensor<4xf32>, sharding=<@mesh, [{}]>>
      attributes {topology = #mpmd.topology<<"m0" : <["x"=2]>>, <"m1" : <["x"=2]>>>} {
    %0 = mpmd.transfer %a : (!mpmd.mesh_tensor<"m0", tensor<4xf32>, sharding=<@mesh, [{"x"}]>>)
      -> !mpmd.mesh_tensor<"m1", tensor<4xf32>, sharding=<@mesh, [{}]>>
    return %0 : !mpmd.mesh_tensor<"m1", tensor<4xf32>, sharding=<@mesh, [{}]>>
  }
}
"""


def test_a_module_of_the_dialect_is_read_and_lowered_to_ifrt() -> None:
    context = make_context()
    shardy_mpmd.register(context)
    module = parse(MODULE, context)
    assert module.operation.verify()
    shardy_mpmd.lower_to_ifrt(module)
    names = [op.operation.name for op in module.body.operations[1].regions[0].blocks[0].operations]
    assert names == ["ifrt.Reshard", "func.return"]


def test_a_module_that_violates_the_dialect_is_refused() -> None:
    context = make_context()
    shardy_mpmd.register(context)
    with pytest.raises(ir.MLIRError, match="Topology doesn't have a mesh with name: m1"), context:
        ir.Module.parse(MODULE.replace('"m1" :', '"m2" :'))


def test_using_the_dialect_leaves_no_jax_jaxlib_modules() -> None:
    shardy_mpmd.partitioner()
    assert not [name for name in sys.modules if name.startswith("jax.jaxlib")]


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("jaxlib._sdy_mpmd", shardy_mpmd.partitioner),
        ("jaxlib.mlir._mlir_libs._sdyMpmd", lambda: shardy_mpmd.register(make_context())),
    ],
)
def test_a_jaxlib_without_the_dialect_is_refused(
    missing: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, name = missing.rpartition(".")
    monkeypatch.delattr(sys.modules[folder], name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PathwaysError, match="PWC0125") as caught:
        use()
    assert "jaxlib" in caught.value.diagnostic.text(caught.value.diagnostic.have)
    assert not [name for name in sys.modules if name.startswith("jax.jaxlib")]
