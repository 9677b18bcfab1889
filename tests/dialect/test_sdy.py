"""Shardings are written as Shardy writes them, and read back by name."""

import pytest

from pathways.dialect.mlir import ir, make_context, parse
from pathways.dialect.sdy import (
    Placed,
    create_mesh,
    has_sub_axes,
    is_closed,
    meshes_of,
    read_axes,
    read_sharding,
    read_shardings,
    shardings_in,
    write_axes,
    write_sharding,
    write_shardings,
)  # fmt: skip

PLACED = [Placed("m0", (("x", "y"), ())), Placed("m1", ()), Placed("m0", ((), ("y",)))]


def test_a_written_sharding_is_closed_and_read_back() -> None:
    with make_context():
        assert str(write_sharding(PLACED[0])) == '#sdy.sharding<@m0, [{"x", "y"}, {}]>'
        for placed in PLACED:
            written = write_sharding(placed)
            assert read_sharding(written) == placed and is_closed(written) and not has_sub_axes(written)
        together = write_shardings((*PLACED, PLACED[0]))
        assert read_shardings(together) == (*PLACED, PLACED[0])
        assert [read_sharding(s) for s in shardings_in(together)] == [*PLACED, PLACED[0]]


@pytest.mark.parametrize(
    ("text", "placed", "closed", "sub_axes"),
    [
        ('<@m0, [{"x", ?}, {}]>', Placed("m0", (("x",), ())), False, False),
        ('<@m0, [{}, {?}]>', Placed("m0", ((), ())), False, False),
        ('<@m0, [{"x":(1)2}, {"y"}]>', Placed("m0", (("x",), ("y",))), True, True),
        ('<mesh<["x"=2]>, [{"x"}]>', Placed("", (("x",),)), True, False),
    ],
)  # fmt: skip
def test_open_and_split_axes_are_noticed(text: str, placed: Placed, closed: bool, sub_axes: bool) -> None:
    with make_context():
        read = ir.Attribute.parse(f"#sdy.sharding{text}")
        assert read_sharding(read) == placed and is_closed(read) is closed and has_sub_axes(read) is sub_axes


def test_meshes_of_a_module_are_found_by_name() -> None:
    axes = (("x", 2), ("y", 3))
    with make_context() as context, ir.Location.unknown():
        assert read_axes(write_axes(axes)) == axes and read_axes(write_axes(())) == ()
        module = parse('sdy.mesh @first = <["a"=4]>\nfunc.func @f() { return }', context)
        create_mesh("second", axes, ir.InsertionPoint.at_block_begin(module.body))
        assert meshes_of(module.operation) == {"first": (("a", 4),), "second": axes}
