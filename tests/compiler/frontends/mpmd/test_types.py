"""Tests types of Shardy's MPMD dialect as they are printed: meshes, shardings, memories."""

from collections.abc import Iterator

import pytest

from pathways.compiler.frontends.mpmd.fragments import call_signature, closed_dims
from pathways.compiler.frontends.mpmd.types import MeshTensor, dims_of, read_mesh_tensor, read_meshes, stated_dims
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.mlir import ir, make_context
from pathways.dialect.shardy_mpmd import register


@pytest.fixture(autouse=True)
def _context() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    context = make_context()
    register(context)
    with context, ir.Location.unknown():
        yield


def tensor(rest: str) -> MeshTensor:
    return read_mesh_tensor(ir.Type.parse(f'!mpmd.mesh_tensor<"m0", {rest}>'))


F32 = ArrayType((4, 8), "float32")


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("tensor<4x8xf32>", MeshTensor("m0", F32, None)),
        ("tensor<bf16>", MeshTensor("m0", ArrayType((), "bfloat16"), None)),
        ('tensor<4x8xf32>, sharding=<@mesh, [{"x"}, {}]>', MeshTensor("m0", F32, (("x",), ()))),
        ('tensor<4x8xf32>, sharding=<@mesh, [{"x", "y"}, {?}]>', MeshTensor("m0", F32, (("x", "y"), ()))),
        ("tensor<4x8xf32>, sharding=<@mesh, [{?}, {?}]>", MeshTensor("m0", F32, None)),
        ("tensor<4x8xf32>, sharding=<@mesh, [{}, {}]>", MeshTensor("m0", F32, ((), ()))),
        ('tensor<4x8xf32>, memory_kind="pinned_host"', MeshTensor("m0", F32, None, "pinned_host")),
        (
            'tensor<4x8xf32>, sharding=<@mesh, [{}, {"x"}]>, memory_kind="device"',
            MeshTensor("m0", F32, ((), ("x",)), "device"),
        ),
    ],
)
def test_a_type_says_its_mesh_sharding_and_memory(rest: str, expected: MeshTensor) -> None:
    assert tensor(rest) == expected


def test_only_memory_of_devices_is_on_device() -> None:
    kinds = ("", "device", "pinned_host", "unpinned_host")
    assert [MeshTensor("m0", F32, None, kind).on_device for kind in kinds] == [True, True, False, False]


def test_a_sharding_is_taken_from_elsewhere_only_if_the_type_says_none() -> None:
    plain, split = MeshTensor("m0", F32, None), MeshTensor("m0", F32, (("x",), ()))
    other = ((), ("y",))
    assert plain.split(other).dims == other and plain.split(None) == plain
    assert split.split(other) == split and split.split(None) == split
    assert MeshTensor("m0", F32, ((), ())).split(other).dims == ((), ()), "replicated is said"


def test_a_value_on_no_mesh_is_of_another_phase() -> None:
    with pytest.raises(PathwaysError, match="PWC0121") as caught:
        read_mesh_tensor(ir.Type.parse("tensor<4xf32>"))
    assert "tensor<4xf32>" in str(caught.value)


@pytest.mark.parametrize(("type_", "says"), [("tensor<?xf32>", "tensor<?xf32>"), ("tensor<4xi3>", "i3")])
def test_what_no_array_is_is_refused_by_its_type(type_: str, says: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0122") as caught:
        tensor(type_)
    assert says in str(caught.value)


def test_a_part_of_an_axis_is_refused() -> None:
    part = ir.Attribute.parse('#sdy.sharding<@mesh, [{"x":(1)2}]>')
    with pytest.raises(PathwaysError, match="PWC0122"):
        dims_of(part)
    whole = ir.Attribute.parse('#sdy.sharding<@mesh, [{"x"}, {}]>')
    assert dims_of(whole) == stated_dims(whole) == (("x",), ())


def test_meshes_are_read_in_their_order() -> None:
    text = '#mpmd.topology<<"b" : <["x"=2, "y"=3]>>, <"a" : <["x"=1]>>>'
    assert read_meshes(ir.Attribute.parse(text), "p") == {"b": (("x", 2), ("y", 3)), "a": (("x", 1),)}
    assert list(read_meshes(ir.Attribute.parse(text), "p")) == ["b", "a"]


def test_what_states_no_sharding_is_replicated_once_shardings_are_decided() -> None:
    ins = (MeshTensor("m0", F32, None), MeshTensor("m0", ArrayType((3,), "float32"), (("x",),)))
    outs = (MeshTensor("m0", ArrayType((), "float32"), None),)
    axes = (("x", 2),)
    opened = call_signature(axes, ins, outs, decided=False)
    assert (opened.axes, opened.ins, opened.outs) == (axes, (None, (("x",),)), (None,))
    decided = call_signature(axes, ins, outs, decided=True)
    assert (decided.axes, decided.ins, decided.outs) == (axes, (((), ()), (("x",),)), ((),))
    assert closed_dims(ins[0]) == ((), ())
