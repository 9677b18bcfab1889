"""Names, shardings and types are spelled as Shardy's parser reads them."""

import pytest

from pathways.compiler.computations.signature import ComputationSignature
from pathways.compiler.emit.donation import Donated, pair_with_results
from pathways.compiler.emit.spelling import (
    axes_text,
    dims_text,
    list_text,
    quoted,
    sharding_text,
    symbol,
    value_text,
)  # fmt: skip
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.mlir import ir, make_context


@pytest.mark.parametrize("name", ["x", "", 'a "b"', "back\\slash", "é", "line\nbreak", "~!#[]", "\U0001f600", "\x7f"])
def test_a_quoted_name_is_read_back_by_mlir(name: str) -> None:
    with make_context():
        assert ir.StringAttr(ir.Attribute.parse(quoted(name))).value == name
        if name:
            assert ir.FlatSymbolRefAttr(ir.Attribute.parse(symbol(name))).value == name


def test_only_names_that_are_no_identifiers_are_quoted() -> None:
    assert symbol("_a.b$1") == "@_a.b$1" and symbol("1a") == '@"1a"' and symbol("é") == '@"\\C3\\A9"'
    assert quoted('a"\\~ ') == '"a\\22\\5C~ "'


def test_axes_shardings_and_types_are_spelled_out() -> None:
    assert axes_text(()) == "<[]>" and axes_text((("data", 2), ("model", 4))) == '<["data"=2, "model"=4]>'
    dims = (("data", "model"), ())
    assert dims_text(dims) == '[{"data", "model"}, {}]' and dims_text(()) == "[]"
    assert sharding_text("m 0", dims) == '<@"m 0", [{"data", "model"}, {}]>'
    type_ = ArrayType((8, 2), "float32")
    expected = '!mpmd.mesh_tensor<"home", tensor<8x2xf32>, sharding=<@m0, [{"data", "model"}, {}]>>'
    assert value_text(type_, "home", "m0", dims) == expected
    assert list_text(["a"]) == "a" and list_text([]) == "()" and list_text(["a", "b"]) == "(a, b)"


def test_a_dead_operand_becomes_the_first_free_result_that_is_like_it() -> None:
    large, small = ArrayType((8,), "float32"), ArrayType((2,), "float32")
    split, whole = (("x",),), ((),)
    said = ComputationSignature(
        (large, large, small, large, large), (split, split, whole, whole, split),
        (small, large, large), (whole, split, split), (("x", 2),),
    )  # fmt: skip
    found = pair_with_results(frozenset({4, 1, 2, 3, 0}), said)
    assert found == [Donated(0, 1), Donated(1, 2), Donated(2, 0), Donated(3, None), Donated(4, None)]
    assert pair_with_results(frozenset({4}), said) == [Donated(4, 1)] and pair_with_results(frozenset(), said) == []
