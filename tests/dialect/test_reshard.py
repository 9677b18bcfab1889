"""Resharding plans deliver every shard and move only missing bytes, as plans and on devices."""

import math
import random
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.reshard import max_pieces, plan_reshard
from pathways.dialect.sharding import MeshSpec, Sharding, intersect, volume
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.transfers import prepare_transfer

SHAPE = (8, 16)
MESHES = [(), (("a", 2),), (("a", 4),), (("a", 2), ("b", 2)), (("a", 2), ("b", 4)), (("a", 1), ("b", 2))]


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    axes = draw(st.sampled_from(MESHES)) or (("one", 1),)
    size = math.prod(n for _, n in axes)
    devices = tuple(draw(st.permutations(range(8)))[:size])
    names = draw(st.permutations([name for name, _ in axes]))
    dims: list[list[str]] = [[], []]
    for name in names:
        where = draw(st.integers(0, 2))
        if where < 2:
            dims[where].append(name)
    return Sharding(MeshSpec(axes, devices), (tuple(dims[0]), tuple(dims[1])))


@given(shardings(), shardings())
def test_a_target_receives_every_piece_once_and_only_missing_ones(source: Sharding, target: Sharding) -> None:
    plan = plan_reshard(SHAPE, source, target, source.mesh.devices, target.mesh.devices)
    lacking = 0
    for position, wanted in enumerate(plan.target_boxes):
        pieces = [p for p in plan.pieces if p.target == position]
        assert sum(volume(p.box) for p in pieces) == volume(wanted)
        for piece in pieces:
            assert intersect(piece.box, wanted) == piece.box
            assert intersect(piece.box, plan.source_boxes[piece.source]) == piece.box
        device = target.mesh.devices[position]
        here = [b for b, d in zip(plan.source_boxes, source.mesh.devices, strict=True) if d == device]
        held = sum(volume(c) for b in here if (c := intersect(b, wanted)))
        lacking += volume(wanted) - held
    assert plan.moved == lacking


@st.composite
def factored(draw: st.DrawFn) -> Sharding:
    """Draws a sharding of a three-dimensional array over 24 devices, with mesh axes of various sizes."""
    sizes = draw(st.sampled_from([(24,), (2, 12), (12, 2), (2, 2, 6), (2, 3, 4), (4, 3, 2), (2, 2, 3, 2), (1, 24, 1)]))
    axes = tuple((f"a{i}", n) for i, n in enumerate(sizes))
    dims: list[list[str]] = [[], [], []]
    for name in draw(st.permutations([name for name, _ in axes])):
        where = draw(st.integers(0, 3))
        if where < 3:
            dims[where].append(name)
    return Sharding(MeshSpec(axes, tuple(range(24))), (tuple(dims[0]), tuple(dims[1]), tuple(dims[2])))


@settings(max_examples=1000)
@given(factored(), factored(), st.sampled_from([(24, 48, 144), (0, 24, 24), (24, 24, 0)]))
def test_layouts_are_equal_exactly_when_all_shards_are_equal(a: Sharding, b: Sharding, shape: tuple[int, ...]) -> None:
    assert a.same_layout(b, shape) == (a.boxes(shape) == b.boxes(shape))


def test_a_factored_axis_gives_the_same_layout() -> None:
    one = Sharding(MeshSpec((("x", 6),), tuple(range(6))), (("x",),))
    two = Sharding(MeshSpec((("p", 2), ("q", 3)), tuple(range(6))), (("p", "q"),))
    assert one.same_layout(two, (12,)) and not one.same_layout(Sharding(two.mesh, (("q", "p"),)), (12,))


@given(shardings(), shardings())
def test_the_piece_count_stays_within_its_bound(source: Sharding, target: Sharding) -> None:
    found = plan_reshard(SHAPE, source, target, source.mesh.devices, target.mesh.devices)
    bound = max_pieces(SHAPE, source, target) - source.mesh.size - target.mesh.size
    assert len(found.pieces) <= bound <= source.mesh.size * target.mesh.size


@settings(max_examples=500)
@given(factored(), factored(), st.sampled_from([(24, 48, 144), (48, 24, 72), (0, 24, 24)]))
def test_the_piece_count_of_unaligned_grids_stays_within_its_bound(
    source: Sharding, target: Sharding, shape: tuple[int, ...]
) -> None:
    """One third of a dimension can overlap two halves, and one half can overlap two thirds."""
    found = plan_reshard(shape, source, target, source.mesh.devices, target.mesh.devices)
    assert len(found.pieces) <= max_pieces(shape, source, target) - source.mesh.size - target.mesh.size


DEVICES = pjrt.make_devices(16)[:8]


def side(sharding: Sharding) -> Side:
    devices = tuple(DEVICES[d] for d in sharding.mesh.devices)
    return Side(sharding, pjrt.named_sharding(sharding.mesh, sharding.dims, devices), devices)


def compile_on(text: str, device: Any) -> Any:
    return pjrt.compile_module(text, [device])


_DTYPES = ("float32", "bfloat16", "int32", "bool", "uint8", "complex64")
_compiled: dict[tuple[str, Any], Any] = {}


def compile_once(text: str, device: Any) -> Any:
    if (text, device) not in _compiled:
        _compiled[text, device] = compile_on(text, device)
    return _compiled[text, device]


def random_sharding(rng: random.Random) -> Sharding:
    axes = rng.choice(MESHES) or (("one", 1),)
    devices = tuple(rng.sample(range(8), math.prod(n for _, n in axes)))
    dims: list[list[str]] = [[], []]
    for name in rng.sample([name for name, _ in axes], len(axes)):
        if (where := rng.randrange(3)) < 2:
            dims[where].append(name)
    return Sharding(MeshSpec(axes, devices), (tuple(dims[0]), tuple(dims[1])))


def lacking(source: Sharding, target: Sharding) -> int:
    """Counts elements that the target's devices do not hold yet: the least that a shard-to-shard plan moves."""
    total = 0
    for device, wanted in zip(target.mesh.devices, target.boxes(SHAPE), strict=True):
        held = np.zeros(SHAPE, bool)
        for other, box in zip(source.mesh.devices, source.boxes(SHAPE), strict=True):
            if other == device:
                held[tuple(slice(p, q) for p, q in box)] = True
        total += int((~held[tuple(slice(p, q) for p, q in wanted)]).sum())
    return total


@pytest.mark.long("more random examples of the same kind", keep=("7",))
@pytest.mark.parametrize("block", range(10))
def test_random_reshardings_on_devices_move_only_missing_bytes(block: int) -> None:
    """The value is correct, the moved bytes are minimal, and no byte passes through host memory."""
    rng = random.Random(block)
    for _ in range(20):
        source, target = random_sharding(rng), random_sharding(rng)
        type_ = ArrayType(SHAPE, rng.choice(_DTYPES))
        host = (np.arange(math.prod(SHAPE)).reshape(SHAPE) % 2).astype(pjrt.numpy_dtype(type_.dtype))
        a, b = side(source), side(target)
        array = pjrt.putter(type_, source, a.real, a.devices)(host)
        transfer = prepare_transfer(type_, a, b, compile_once, may_use_host=True)
        with jax.transfer_guard_host_to_device("disallow"), jax.transfer_guard_device_to_host("disallow"):
            moved = transfer.move(array)
        assert moved.sharding == b.real
        np.testing.assert_array_equal(np.asarray(moved), host)
        for position, box in enumerate(target.boxes(SHAPE)):
            part = pjrt.shard(moved, position)
            assert part.devices() == {b.devices[position]}
            np.testing.assert_array_equal(np.asarray(part), host[tuple(slice(p, q) for p, q in box)])
        crossed = sum(op.bytes for op in transfer.record if op.kind == "copy" and op.source != op.target)
        assert crossed == lacking(source, target) * type_.shard_bytes(())
        for op in transfer.record:
            assert op.kind in ("cut", "copy", "join")
            assert op.source in (b.devices if op.kind == "join" else a.devices)
            assert op.target in (a.devices if op.kind == "cut" else b.devices)


def test_equal_layouts_have_the_same_devices_in_the_same_order() -> None:
    mesh, renamed, turned = (MeshSpec(((n, 2),), d) for n, d in (("a", (0, 1)), ("b", (0, 1)), ("a", (1, 0))))
    one, other, third = (Sharding(m, ((m.axes[0][0],), ())) for m in (mesh, renamed, turned))
    assert one.same_layout(other, SHAPE)
    assert not one.same_layout(third, SHAPE)
    assert not one.same_layout(Sharding(mesh, ((), ("a",))), SHAPE)


@given(shardings(), shardings())
def test_holders_of_a_replicated_shard_share_the_sending(source: Sharding, target: Sharding) -> None:
    """No holder sends more than another holder by more than one piece."""
    plan = plan_reshard(SHAPE, source, target, source.mesh.devices, target.mesh.devices)
    replicas: dict[Any, list[int]] = {}
    for position, box in enumerate(plan.source_boxes):
        replicas.setdefault(box, []).append(position)
    for holders in replicas.values():
        sent = dict.fromkeys(holders, 0)
        largest = 0
        for piece in plan.pieces:
            if piece.source in sent and source.mesh.devices[piece.source] != target.mesh.devices[piece.target]:
                sent[piece.source] += volume(piece.box)
                largest = max(largest, volume(piece.box))
        assert max(sent.values()) - min(sent.values()) <= largest


def test_each_of_four_replicas_serves_one_of_four_targets() -> None:
    everywhere = Sharding(MeshSpec((("a", 4),), (0, 1, 2, 3)), ((), ()))
    elsewhere = Sharding(MeshSpec((("a", 4),), (4, 5, 6, 7)), ((), ()))
    plan = plan_reshard(SHAPE, everywhere, elsewhere, (0, 1, 2, 3), (4, 5, 6, 7))
    assert sorted((p.source, p.target) for p in plan.pieces) == [(n, n) for n in range(4)]
