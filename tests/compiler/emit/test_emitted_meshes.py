"""Tests that several meshes over the same devices are emitted as one mesh, and how names and constants are written."""

import pytest

from pathways.compiler.computations.signature import ComputationSignature
from pathways.compiler.emit.donation import Donated, pair_with_results
from pathways.compiler.emit.fragments import Symbols, constant_text
from pathways.compiler.emit.meshes import NamedMesh, common_axes, spell
from pathways.compiler.emit.spelling import quoted, symbol
from pathways.dialect.dtypes import shared_type
from pathways.dialect.sharding import Axes, MeshSpec, Sharding

LINE: Axes = (("x", 8),)
GRID: Axes = (("a", 2), ("b", 4))
OTHER: Axes = (("c", 4), ("d", 2))


@pytest.mark.parametrize(
    ("several", "common"),
    [
        ([LINE], LINE),
        ([LINE, LINE], LINE),
        ([LINE, GRID], GRID),
        ([LINE, (("a", 2), ("one", 1), ("b", 4))], GRID),
        ([GRID, OTHER], (("part0", 2), ("part1", 2), ("part2", 2))),
        ([(("p", 1),), (("q", 1),)], ()),
        ([(("a", 2), ("b", 3)), (("c", 3), ("d", 2))], None),
    ],
)
def test_meshes_over_the_same_devices_have_common_axes(several: list[Axes], common: Axes | None) -> None:
    assert common_axes(several) == common


@pytest.mark.parametrize("axes", [LINE, GRID, OTHER])
def test_shardings_over_common_axes_have_the_same_shards(axes: Axes) -> None:
    common = common_axes([LINE, GRID, OTHER])
    assert common is not None
    spelled = spell(axes, common)
    names = tuple(name for name, _ in axes)
    for dims in ((names, ()), (names[::-1], ()), ((), names), ((names[-1],), names[:-1])):
        ours = Sharding(MeshSpec(axes, tuple(range(8))), dims)
        fine = tuple(tuple(f for axis in dim for f in spelled[axis]) for dim in dims)
        theirs = Sharding(MeshSpec(common, tuple(range(8))), fine)
        assert ours.boxes((16, 16)) == theirs.boxes((16, 16))


def test_an_axis_of_size_one_splits_nothing() -> None:
    assert spell((("a", 1), ("b", 2)), (("a", 1), ("b", 2))) == {"a": (), "b": ("b",)}


def test_a_dead_operand_is_donated_to_the_first_free_result_of_its_type() -> None:
    small, large = shared_type((2,), "float32"), shared_type((4,), "float32")
    signature = ComputationSignature(
        (small, small, large, small), (((),),) * 4, (large, small), (((),), (("x",),)), (("x", 2),)
    )
    dead = frozenset({0, 2, 3})
    assert pair_with_results(dead, signature) == [Donated(0, None), Donated(2, 0), Donated(3, None)]


def test_names_are_quoted_for_mlir() -> None:
    assert quoted('a"b\\c\né') == '"a\\22b\\5Cc\\0A\\C3\\A9"'
    assert symbol("p0_f.step") == "@p0_f.step" and symbol("a b") == '@"a b"'


def test_symbols_are_unique() -> None:
    symbols = Symbols()
    assert [symbols.new("main"), symbols.new("f"), symbols.new("f")] == ["main_1", "f", "f_1"]
    assert symbols.axes(LINE) == symbols.axes(LINE) == "mesh"
    assert symbols.axes(GRID) == "mesh_1"


@pytest.mark.parametrize(
    ("dtype", "shape", "raw", "written"),
    [
        ("float32", (2,), "0000803f00000040", 'dense<"0x0000803F00000040">'),
        ("bool", (2, 2), "01000001", "dense<[[true, false], [false, true]]>"),
        ("bool", (), "01", "dense<true>"),
        ("bool", (0, 3), "", "dense<>"),
        ("int4", (2,), "0f01", 'dense<"0x0F01">'),
        ("float32", (0,), "", "dense<>"),
    ],
)
def test_constants_are_written_byte_by_byte(dtype: str, shape: tuple[int, ...], raw: str, written: str) -> None:
    type_ = shared_type(shape, dtype)
    text = constant_text(type_, bytes.fromhex(raw), "c", NamedMesh("m", LINE), "mesh", ((),) * len(shape))
    assert f"stablehlo.constant {written} : {type_.mlir}" in text
