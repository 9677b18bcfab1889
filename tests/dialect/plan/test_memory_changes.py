"""Memory of streams stated by hand: every change, the peak and its owners, and the bytes after each step."""

from dataclasses import replace

from support.plans_by_hand import MESHES, branch, group, kind, plan, port, stream

from pathways.dialect.plan.instructions import Copy, Free, Recv, Run
from pathways.dialect.plan.memory import (
    Change,
    Peak,
    borrowed_slots,
    by_kind,
    classes_of,
    memory_changes,
    peak,
    peak_of,
    peaks,
    timeline,
)  # fmt: skip
from pathways.dialect.plan.nouns import PlanMesh

KINDS = (kind(0, 100), kind(1, 10))
GROUPS = (group("x", 0, 1), group("y", 0, birth=0), group("z", 1, birth=1))
RUN = Run(0, 0, 0, (0,), (2,), (0,), "f", None, temporaries=7)
STREAM = stream("left", KINDS, GROUPS, RUN, Copy(1, 2, 3, None), Free(2, (1, 2)))
"""`f` overwrites the first buffer of x by y. Device 1 is in both meshes."""
NONE = frozenset[int]()


def test_allocations_and_frees_are_listed_in_order() -> None:
    assert list(memory_changes(STREAM, NONE)) == [
        Change(-1, 0, "x", 100), Change(-1, 1, "x", 10),
        Change(0, 0, "x", -100), Change(0, 0, "y", 100),
        Change(0, 0, "temporaries of f", 7), Change(0, 0, "temporaries of f", -7),
        Change(1, 1, "z", 10),
        Change(2, 0, "y", -100), Change(2, 1, "x", -10),
    ]  # fmt: skip
    assert list(memory_changes(STREAM, frozenset({1})))[-1] == Change(2, 0, "y", -100)


def test_a_run_without_temporaries_changes_only_its_buffers() -> None:
    run = replace(RUN, temporaries=0, donated=())
    found = list(memory_changes(stream("left", KINDS, GROUPS, run), NONE))
    assert found[2:] == [Change(0, 0, "y", 100)]


def test_temporaries_of_a_branch_are_on_all_its_meshes_at_once() -> None:
    step = branch(3, "cond", inputs=(0, 1), outputs=(2,), donated=(1,), meshes=(0, 1), temporaries=5)
    found = list(memory_changes(stream("left", KINDS, GROUPS, step), NONE))
    assert found[2:4] == [Change(3, 1, "x", -10), Change(3, 0, "y", 100)]
    assert found[4:] == [Change(3, mesh, "temporaries of b3", size) for size in (5, -5) for mesh in (0, 1)]
    found = list(memory_changes(stream("left", KINDS, GROUPS, replace(step, temporaries=0)), NONE))
    assert found[4:] == []


def test_buffers_of_one_owner_change_together() -> None:
    groups = (group("x", 0, 0, 1), group("y", 0, 0, birth=0))
    run = replace(RUN, inputs=(0, 1, 2), outputs=(3, 4), donated=(0, 1, 2), temporaries=0)
    found = list(memory_changes(stream("left", KINDS, groups, Recv(0, 0, 3, "right", None), run), NONE))
    assert found[3:] == [
        Change(0, 0, "y", 100), Change(0, 0, "x", -200), Change(0, 1, "x", -10), Change(0, 0, "y", 200),
    ]  # fmt: skip


def test_the_peak_is_on_the_fullest_device_by_owner() -> None:
    assert peak_of(STREAM, MESHES, NONE) == Peak(120, 1, 1, (("y", 100), ("x", 10), ("z", 10)))
    assert peaks(STREAM, MESHES, NONE) == {0: 107, 1: 120, 2: 20}
    assert peak_of(stream("left", (), ()), MESHES, NONE) == Peak(0, -1, -1, ()) == Peak()
    kept = plan(STREAM, inputs=(port("left", 1),))
    assert peak(kept, "left") == peak_of(STREAM, MESHES, NONE)


def test_owners_of_equal_size_are_in_order_of_their_names() -> None:
    found = peak_of(stream("left", (kind(0, 1),), (group("z", 0), group("a", 0))), MESHES, NONE)
    assert found == Peak(2, -1, 0, (("a", 1), ("z", 1)))


def test_a_peak_may_be_a_byte_or_none() -> None:
    for size in (0, 1):
        found = stream("left", (kind(0, size),), (group("x", 0),))
        assert peak_of(found, MESHES, NONE).bytes == size and peaks(found, MESHES, NONE) == {0: size, 1: size}


def test_temporaries_count_for_the_peak() -> None:
    found = peak_of(stream("left", KINDS, GROUPS, replace(RUN, temporaries=30)), MESHES, NONE)
    assert found == Peak(140, 0, 1, (("y", 100), ("temporaries of f", 30), ("x", 10)))


def test_of_equal_devices_the_first_is_named() -> None:
    meshes = PlanMesh("m", "s", "left", (("x", 2),), (3, 2)), PlanMesh("n", "s", "left", (), (3,))
    assert peak_of(stream("left", (kind(0, 9),), (group("x", 0),)), meshes, NONE) == Peak(9, -1, 2, (("x", 9),))
    late = (group("x", 0), group("y", 0, birth=1)), Free(0, (0,)), Copy(1, 0, 1, None)
    assert peak_of(stream("left", (kind(0, 9),), *late), meshes, NONE).step == -1


def test_only_meshes_of_the_island_count() -> None:
    kinds = (kind(2, 50), kind(2, 1))
    found = plan(STREAM, stream("right", kinds, (group("r", 0, 1),)))
    assert peak(found, "right") == Peak(51, -1, 0, (("r", 51),))
    assert timeline(found, "right", 0) == [(-1, {"r": 51})] and timeline(found, "left", 0)[0] == (-1, {"x": 100})


def test_devices_of_equal_meshes_are_one_class() -> None:
    assert classes_of(MESHES) == [[(0,), (1,)], [(1,), (2,)], [(0, 1, 2, 3)]]
    turned = PlanMesh("m", "s", "left", (("x", 4),), (3, 1, 0, 2))
    assert classes_of([turned, turned]) == [[(0, 1, 2, 3)], [(0, 1, 2, 3)]]
    assert classes_of([turned, replace(turned, island="right", devices=(3,))]) == [[(0, 1, 2, 3)], [(3,)]]


def test_the_caller_keeps_arguments_that_are_not_donated() -> None:
    ports = (port("left", 0), port("left", 3, donated=True), port("left", -1), port("right", 4), port("left", 7))
    assert borrowed_slots(plan(STREAM, inputs=ports), "left") == {0, 7}


def test_the_timeline_lists_each_step_that_changes_a_device() -> None:
    found = plan(STREAM)
    assert timeline(found, "left", 1) == [
        (-1, {"x": 110}), (0, {"x": 10, "y": 100}), (1, {"x": 10, "y": 100, "z": 10}), (2, {"z": 10}),
    ]  # fmt: skip
    assert timeline(found, "left", 2) == [(-1, {"x": 10}), (1, {"x": 10, "z": 10}), (2, {"z": 10})]
    assert timeline(found, "left", 3) == []
    kept = plan(STREAM, inputs=(port("left", 1),))
    assert timeline(kept, "left", 2) == [(-1, {"x": 10}), (1, {"x": 10, "z": 10})]


def test_owners_of_microbatches_are_summed_by_kind() -> None:
    owners = [("params", 5), ("activations of microbatch 10", 2), ("activations of microbatch 9", 1), ("a", 5)]
    assert by_kind([*owners, ("gradients of microbatch 0", 9)]) == [
        ("gradients of 1 microbatch (0)", 9), ("a", 5), ("params", 5), ("activations of 2 microbatches (9, 10)", 3),
    ]  # fmt: skip
    many = [(f"activations of microbatch {n}", 1) for n in range(9)]
    assert by_kind(many[:8]) == [("activations of 8 microbatches (0, 1, 2, 3, 4, 5, 6, 7)", 8)]
    assert by_kind(many) == [("activations of 9 microbatches (0, 1, 2, 3, 4, 5, 6, 7, ...)", 9)]
