"""The arithmetic of shards, compared with values worked out by hand."""

import pytest

from pathways.dialect.reshard import max_pieces, plan_reshard
from pathways.dialect.sharding import Box, MeshSpec, Sharding, intersect, replicated, size_of_axes, volume

GRID = MeshSpec((("a", 2), ("b", 3)), (0, 1, 2, 3, 4, 5))
SQUARE = MeshSpec((("a", 2), ("b", 2)), (3, 2, 1, 0))


def test_axes_multiply_to_the_size_of_a_mesh() -> None:
    assert size_of_axes(()) == 1 and size_of_axes((("a", 2), ("b", 3))) == 6
    assert [GRID.size_of(axes) for axes in ((), ("a",), ("b",), ("b", "a"))] == [1, 2, 3, 6]
    assert (GRID.size, GRID.shape, replicated(0), replicated(2)) == (6, (2, 3), (), ((), ()))


def test_dimensions_that_do_not_divide_are_listed_with_their_parts() -> None:
    sharding = Sharding(GRID, (("a",), (), ("b", "a")))
    assert sharding.undivided((3, 5, 12)) == [(0, 2)] and sharding.undivided((4, 5, 9)) == [(2, 6)]
    assert sharding.undivided((4, 1, 0)) == [] and sharding.shard_shape((4, 5, 12)) == (2, 5, 2)


@pytest.mark.parametrize(
    ("dims", "starts"),
    [
        ((("a", "b"),), [0, 2, 4, 6]),
        ((("b", "a"),), [0, 4, 2, 6]),
    ],
)
def test_the_first_axis_of_a_dimension_is_the_major_one(dims: tuple[tuple[str, ...]], starts: list[int]) -> None:
    assert Sharding(SQUARE, dims).boxes((8,)) == [((start, start + 2),) for start in starts]


def test_each_device_has_the_box_of_its_coordinates() -> None:
    columns = Sharding(SQUARE, ((), ("a",)))
    assert columns.boxes((3, 4)) == [((0, 3), cut) for cut in ((0, 2), (0, 2), (2, 4), (2, 4))]
    assert Sharding(SQUARE, ()).boxes(()) == [()] * 4


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (((0, 4), (2, 6)), ((1, 9), (0, 3)), ((1, 4), (2, 3))),
        (((0, 4),), ((4, 8),), None),
        (((0, 4), (0, 4)), ((0, 4), (5, 8)), None),
        (((2, 2),), ((0, 4),), None),
        ((), (), ()),
    ],
)
def test_boxes_intersect_where_they_share_elements(a: Box, b: Box, common: Box | None) -> None:
    assert intersect(a, b) == intersect(b, a) == common


def test_the_volume_of_a_box_counts_its_elements() -> None:
    assert volume(()) == 1 and volume(((1, 4), (2, 4))) == 6 and volume(((1, 4), (2, 2))) == 0


def line(size: int, *devices: int) -> Sharding:
    return Sharding(MeshSpec((("x", size),), devices or tuple(range(size))), (("x",),))


@pytest.mark.parametrize(("source", "target"), [(4, 2), (2, 4), (4, 4), (1, 8), (8, 1)])
def test_the_bound_of_pieces_is_exact_where_shards_align(source: int, target: int) -> None:
    here, there = line(source), line(target)
    found = plan_reshard((8,), here, there, range(source), range(target))
    assert max_pieces((8,), here, there) == len(found.pieces) + source + target


@pytest.mark.parametrize(("source", "target", "most"), [(3, 2, 3 + 2 * 4), (2, 3, 2 + 3 * 3), (4, 3, 4 + 3 * 4)])
def test_a_shard_that_is_not_aligned_touches_one_more(source: int, target: int, most: int) -> None:
    assert max_pieces((24,), line(source), line(target)) == most
    assert max_pieces((0,), line(source), line(target)) == source + target


def test_pieces_of_dimensions_multiply() -> None:
    mesh = MeshSpec((("a", 4), ("b", 2)), tuple(range(8)))
    cut, whole = Sharding(mesh, (("a",), ("b",))), Sharding(mesh, ((), ()))
    assert max_pieces((8, 8), cut, whole) == 8 + 8 * (1 + 8)


def test_a_reshard_is_a_copy_where_positions_hold_equal_boxes() -> None:
    pairs = {(a, b): plan_reshard((8,), line(a), line(b), range(a), range(b)) for a, b in ((2, 2), (2, 4), (4, 2))}
    assert [pairs[key].is_copy for key in pairs] == [True, False, False]
    whole = Sharding(SQUARE, ((),))
    assert not plan_reshard((8,), whole, line(4), range(4), range(4)).is_copy
    elsewhere = plan_reshard((8,), line(2), line(2, 7, 9), (0, 1), (7, 9))
    assert elsewhere.is_copy and elsewhere.moved == 8
