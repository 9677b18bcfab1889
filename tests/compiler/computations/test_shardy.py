"""Tests what propagation through one computation makes of the shardings on its signature."""

from pathways.compiler.computations.shardy import SignatureShardings, propagate, read_signature
from pathways.dialect.mlir import ir, make_context, parse
from pathways.dialect.sharding import Axes

AXES: Axes = (("a", 2), ("b", 2))
HINTS = """module @f attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(
    %x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a", ?}, {?}]>},
    %y: tensor<8x8xf32>,
    %z: tensor<8x8xf32>
  ) -> (tensor<8x8xf32>, tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"b", ?}]>}, tensor<8x8xf32>) {
    %0 = stablehlo.negate %x : tensor<8x8xf32>
    return %0, %y, %z : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
  }
}"""


def test_propagation_closes_shardings_that_are_hints_before() -> None:
    """Shardings with open dimensions are not stated, but propagation follows them. What none determines stays open."""
    computation = parse(HINTS, make_context()).operation
    rows, columns = (("a",), ()), ((), ("b",))
    with ir.Location.unknown(computation.context):
        stated = read_signature(computation, AXES)
        found = propagate(computation, AXES, stated, None)
    assert stated == SignatureShardings((None, None, None), (None, None, None))
    assert found == SignatureShardings((rows, columns, None), (rows, columns, None))
