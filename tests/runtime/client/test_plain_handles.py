"""Tests results of small calls: their handles have no destructor until a buffer is listed, shared or counted."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.stored_buffers import World, code_of_read, stored_world

from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.handles import CountedHandle, Handle
from pathways.runtime.client.store import MAX_PLAIN_RESULTS


@pytest.fixture
def world() -> Iterator[World]:
    with stored_world() as found:
        yield found


def plain(world: World, **more: Any) -> Handle:
    """Returns the handle of a result while nobody counts bytes."""
    limits: dict[Any, int] = {}
    world.store.notify(world.count, limits)
    (handle,) = world.store.hold_results([world.buffer(object(), **more)])
    assert type(handle) is Handle
    return handle


def test_the_result_of_a_small_call_goes_without_notice(world: World) -> None:
    handle = plain(world)
    buffer = handle.buffer
    del handle
    assert world.store.buffers == [] and buffer.array is not None, "runs that hold the buffer may still read it"
    many = world.store.hold_results([world.buffer(object()) for _ in range(MAX_PLAIN_RESULTS + 1)])
    assert {type(handle) for handle in many} == {CountedHandle}


@pytest.mark.parametrize("count", ["buffers", "share", "hold"])
def test_a_plain_handle_is_counted_when_somebody_asks_or_shares(world: World, count: str) -> None:
    handle = plain(world)
    buffer = handle.buffer
    second: Handle | None = None
    if count == "buffers":
        assert world.store.buffers == [buffer]
    elif count == "share":
        second, _ = handle.share()
    else:
        second = world.store.hold(buffer)
    assert type(handle) is CountedHandle and buffer.is_shared == (second is not None)
    del handle
    assert not buffer.is_shared and (buffer.state == "freed") == (second is None)
    del second
    assert buffer.array is None and buffer.state == "freed" and not world.store.buffers


def test_a_buffer_whose_plain_handle_has_ended_is_held_again(world: World) -> None:
    """A run returns its argument, whose handle was dropped meanwhile."""
    handle, claims, kept = plain(world), list[Handle](), list[StoredBuffer]()
    buffer = handle.buffer
    world.store.keep([buffer], kept)
    del handle
    again = world.store.hold(buffer, buffer.array)
    assert buffer.holders == 2 and world.store.claim([again], "train", claims) == [again]
    world.store.let_go(kept)
    assert world.store.claim([again], "train", claims) == [] and world.store.buffers == [buffer]


def test_a_plain_handle_that_is_dropped_while_a_run_reads_counts_once(world: World) -> None:
    handle, kept = plain(world), list[StoredBuffer]()
    buffer = handle.buffer
    world.store.keep([buffer], kept)
    handle.drop()
    del handle
    again = world.store.hold(buffer, buffer.array)
    world.store.let_go(kept)
    assert again.array() is not None and buffer.holders == 1


def test_the_bytes_of_a_buffer_that_is_held_again_while_a_run_reads_are_counted(world: World) -> None:
    handle, kept = plain(world), list[StoredBuffer]()
    buffer = handle.buffer
    world.store.keep([buffer], kept)
    del handle
    again = world.store.hold(buffer, buffer.array)
    assert buffer.counted and world.store.owners_on("d0") == {world.client.label: 4} and again.buffer is buffer


def test_results_that_a_closing_client_has_freed_are_not_freed_again(world: World) -> None:
    """Another thread closes the client just after the results have got their handles."""

    class Limits(dict[Any, int]):
        """No limits. The second question is asked once the results have their handles."""

        def __bool__(self) -> bool:
            asked.append(len(asked))
            if len(asked) == 2:
                world.client.closed = True
                world.store.drop(world.client)
            return False

    asked: list[int] = []
    world.store.notify(world.count, Limits())
    (handle,) = world.store.hold_results([world.buffer(object())])
    assert handle.buffer.state == "freed" and handle.buffer.array is None and not world.store.buffers


def test_results_from_before_the_first_limit_are_counted_then(world: World) -> None:
    limits: dict[Any, int] = {}
    world.store.notify(world.count, limits)
    early, gone = world.store.hold_results([world.buffer(object()) for _ in range(2)])
    held = gone.buffer
    del gone
    limits["d0"] = 10
    assert world.store.owners_on("d0") == {world.client.label: 4} and world.bytes == {}
    again = world.store.hold(held)
    assert world.bytes == {"d0": 4, "d1": 4}
    del early, again
    assert world.bytes == {"d0": -4, "d1": -4}, "the sum of the first was asked for, not told"


def test_a_plain_handle_is_donated_deleted_and_dropped_as_others_are(world: World) -> None:
    for end in ("give_up", "drop", "client"):
        handle = plain(world)
        if end == "give_up":
            claims: list[Handle] = []
            assert world.store.claim([handle], "train", claims) == []
            world.store.give_up(claims, "train")
            assert code_of_read(handle) == "PWC0207"
        elif end == "drop":
            handle.drop()
        else:
            world.store.drop(world.client)
        assert handle.buffer.array is None and handle.buffer.state == "freed" and not world.store.buffers, end


@pytest.mark.parametrize("sums", [True, False])
def test_a_limit_that_comes_while_results_are_held_counts_them_once(world: World, sums: bool) -> None:
    """Another thread sets the first limit after the results have got their handles, and may sum up what is held."""

    class Limits(dict[Any, int]):
        """No limits at the first question, one at the next."""

        def __bool__(self) -> bool:
            asked.append(len(asked))
            if len(asked) == 2 and sums:
                assert world.store.owners_on("d0") == {world.client.label: 8}
            return len(asked) > 1

    asked: list[int] = []
    world.store.notify(world.count, Limits())
    handles = world.store.hold_results([world.buffer(object()) for _ in range(2)])
    assert {type(handle) for handle in handles} == {CountedHandle}
    assert world.bytes == ({} if sums else {"d0": 8, "d1": 8})
