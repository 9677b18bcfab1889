"""Tests what handles on buffers allow: claims, sharing, and reads by other clients or after an end."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.stored_buffers import World, code_of_read, stored_world

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.runtime.client.buffers import StoredBuffer, Suspended
from pathways.runtime.client.handles import DELETED, Handle
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.errors import ComputationFailed, DeviceLost
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Poison, lost_among, lost_poison

POISON = Poison(ComputationFailed(computation="f", island="island0", cause="a reason"))
OTHER = ClientState("other", number=77)


@pytest.fixture
def world() -> Iterator[World]:
    with stored_world() as found:
        yield found


@pytest.mark.parametrize(("end", "code"), [("donated", "PWC0207"), ("closed", "PWC0509")])
def test_an_array_that_ends_while_it_is_read_is_refused(world: World, end: str, code: str) -> None:
    """Another thread donates the array, or closes the client, between the checks and the read: no None comes out."""
    handle = world.hold()

    class EndsWhenRead:
        client, name = handle.buffer.client, handle.buffer.name

        @property
        def array(self) -> None:
            if end == "donated":
                handle.taken_by = "train"
            else:
                self.client.closed = True

    buffer: Any = EndsWhenRead()
    kept, handle.buffer = handle.buffer, buffer
    assert code_of_read(handle) == code
    handle.buffer, world.client.closed = kept, False


def test_a_claim_keeps_others_from_claiming_until_it_is_taken_back(world: World) -> None:
    handle, claims = world.hold(), list[Handle]()
    assert world.store.claim([handle], "train", claims) == []
    assert claims == [handle] and handle.buffer.state == "claimed"
    assert world.store.claim([handle], "eval", claims) == [handle] and claims == [handle]
    assert code_of_read(handle) == "PWC0207"
    handle.unclaim()
    assert handle.taken_by is None and handle.array() is handle.buffer.array and handle.buffer.state == "made"
    assert world.store.claim([handle], "eval", claims) == [] and handle.taken_by == "eval"


def test_a_buffer_that_others_hold_or_a_plan_pins_is_not_claimed(world: World) -> None:
    handle, claims = world.hold(), list[Handle]()
    second, array = handle.share()
    assert array is handle.buffer.array and second.buffer is handle.buffer and handle.buffer.is_shared
    assert world.store.claim([handle], "train", claims) == [handle]
    second.drop()
    assert not handle.buffer.is_shared
    pinned = world.hold(pinned=True)
    assert world.store.claim([pinned, handle], "train", claims) == [pinned] and claims == [handle]
    assert pinned.taken_by is None and handle.taken_by == "train"


def test_a_buffer_that_a_run_reads_is_not_claimed_until_it_lets_go(world: World) -> None:
    handle, kept, claims = world.hold(), list[StoredBuffer](), list[Handle]()
    world.store.keep([handle.buffer], kept)
    assert kept == [handle.buffer] and world.store.claim([handle], "train", claims) == [handle]
    world.store.let_go(kept)
    assert kept == [] and world.store.claim([handle], "train", claims) == [] and handle.buffer.holders == 1


def test_a_buffer_that_a_run_reads_outlives_its_last_handle(world: World) -> None:
    handle, kept = world.hold(), list[StoredBuffer]()
    buffer = handle.buffer
    world.store.keep([buffer], kept)
    handle.drop()
    assert buffer.array is not None and world.bytes == {"d0": 4, "d1": 4} and world.store.of(world.client) == [buffer]
    world.store.let_go(kept)
    assert buffer.array is None and buffer.state == "freed" and world.bytes == {"d0": 0, "d1": 0}


def test_a_buffer_that_was_dropped_meanwhile_is_held_again_with_its_array(world: World) -> None:
    handle, array = world.hold(), object()
    buffer = handle.buffer
    handle.drop()
    again = world.store.hold(buffer, array)
    assert again.array() is array and buffer.state == "made" and world.bytes == {"d0": 4, "d1": 4}


def test_a_pinned_buffer_is_not_counted_and_keeps_its_array(world: World) -> None:
    array = object()
    handle = world.hold(array, pinned=True)
    handle.drop()
    assert world.bytes == {} and handle.buffer.array is array


def test_each_result_of_a_run_is_counted_until_its_last_handle_is_dropped(world: World) -> None:
    handle, failed = world.store.hold_results([world.buffer(object()), world.buffer(POISON, devices=("d1",))])
    assert world.bytes == {"d0": 4, "d1": 8} and (handle.buffer.state, failed.buffer.state) == ("made", "poisoned")
    other, _ = handle.share()
    handle.drop()
    assert world.bytes == {"d0": 4, "d1": 8}
    other.drop()
    failed.drop()
    assert world.bytes == {"d0": 0, "d1": 0} and not world.store.buffers


def test_results_for_a_client_that_has_closed_meanwhile_hold_nothing(world: World) -> None:
    world.client.closed = True
    handles = world.store.hold_results([world.buffer(object()) for _ in range(2)])
    assert [h.buffer.array for h in handles] == [None, None] and not world.bytes and not world.store.buffers
    for handle in handles:
        handle.drop()
    assert not world.bytes


def test_results_and_donations_are_counted_only_while_there_are_limits(world: World) -> None:
    limits: dict[Any, int] = {}
    world.store.notify(world.count, limits)
    world.store.give_up(world.store.hold_results([world.buffer(object())]), "train")
    assert not world.bytes
    limits["d0"] = 10
    handles = world.store.hold_results([world.buffer(object()) for _ in range(2)])
    assert world.bytes == {"d0": 8, "d1": 8}
    world.store.give_up(handles, "train")
    assert world.bytes == {"d0": 0, "d1": 0} and all(h.taken_by == "train" for h in handles)


def test_a_donated_array_says_to_which_program_and_where(world: World) -> None:
    handle = world.hold()
    handle.give_up("train", Where("model.py", 7, ""))
    with pytest.raises(PathwaysError) as caught:
        handle.array()
    assert caught.value.code == "PWC0207" and "train" in str(caught.value) and "model.py:7" in str(caught.value)
    assert handle.buffer.array is None and world.bytes == {"d0": 0, "d1": 0}
    handle.give_up("eval")
    handle.unclaim()
    handle.drop()
    assert handle.taken_by == "train" and handle.buffer.holders == 0


def test_a_deleted_array_says_where(world: World) -> None:
    handle = world.hold()
    handle.give_up(DELETED, Where("model.py", 8, ""))
    with pytest.raises(PathwaysError, match=r"model\.py:8") as caught:
        handle.array()
    assert caught.value.code == "PWC0217"
    later = world.hold()
    later.give_up(DELETED)
    assert code_of_read(later) == "PWC0217"


def test_only_its_client_reads_an_array(world: World) -> None:
    handle = world.hold()
    assert handle.is_mine
    token = current_client.set(OTHER)
    try:
        assert not handle.is_mine and code_of_read(handle) == "PWC0508"
    finally:
        current_client.reset(token)
    world.client.suspended = True
    assert not handle.is_mine
    world.client.suspended, world.client.closed = False, True
    assert not handle.is_mine and code_of_read(handle) == "PWC0509"


def test_a_suspended_array_and_a_forked_store_say_so(world: World) -> None:
    handle, away = world.hold(), world.hold()
    assert world.store.replace(away.buffer, away.buffer.array, Suspended("mine"), held=False)
    assert away.buffer.state == "suspended" and code_of_read(away) == "PWC0515" and world.bytes == {"d0": 4, "d1": 4}
    world.store.in_child()
    assert code_of_read(handle) == "PWC0520"


def test_a_buffer_of_a_closed_client_is_freed_at_once(world: World) -> None:
    world.client.closed = True
    handle = world.hold()
    assert handle.buffer.array is None and world.store.of(world.client) == [] and world.bytes == {}


def test_dropping_a_client_frees_its_buffers_alone(world: World) -> None:
    handle, other = world.hold(), world.hold(client=OTHER, devices=("d2",))
    assert world.store.of(world.client) == [handle.buffer] and world.store.bytes == 8
    assert world.store.devices_in_use() == {"d0", "d1", "d2"}
    world.store.drop(world.client)
    assert handle.buffer.array is None and world.bytes == {"d0": 0, "d1": 0, "d2": 4}
    assert world.store.of(OTHER) == [other.buffer] and world.store.bytes == 4


def test_a_lost_device_poisons_the_buffers_that_lie_there(world: World) -> None:
    handle, other = world.hold(), world.hold(devices=("d2",))
    world.store.lose("d1", POISON)
    assert handle.array() is POISON and handle.buffer.state == "poisoned"
    assert other.array() is not POISON and other.buffer.state == "made"


def test_a_promise_that_fails_poisons_only_the_buffers_that_still_hold_it(world: World) -> None:
    promise, second = (Promise(n, "f", world.client, False) for n in range(2))
    waits, kept, other = world.hold(promise), world.hold(promise), world.hold(second)
    assert waits.known(timeout=0) is promise and waits.buffer.state == "promised"
    array = object()
    assert world.store.replace(kept.buffer, promise, array, held=True)
    world.store.resolve(promise, POISON)
    assert promise.is_known and waits.known() is POISON and waits.buffer.state == "poisoned"
    assert kept.known() is array and other.array() is second and not second.is_known


def test_a_handle_waits_for_a_promise_and_reads_what_took_its_place(world: World) -> None:
    class Kept(Promise):
        """A promise that is kept while a thread waits for it."""

        def wait(self, timeout: float | None = None) -> bool:
            assert world.store.replace(handle.buffer, self, array, held=True)
            self.resolve()
            return super().wait(timeout)

    array = object()
    handle = world.hold(Kept(0, "f", world.client, False))
    assert handle.known() is array is handle.known(timeout=0)


def test_a_poisoned_buffer_raises_nothing_until_its_cause_is_asked_for(world: World) -> None:
    handle = world.hold(POISON)
    assert handle.array() is POISON and handle.buffer.state == "poisoned"
    assert POISON.error().diagnostic is POISON.cause and "a reason" in str(POISON.error())


def island(lost: dict[int, str], key: str = "island0") -> Any:
    return SimpleNamespace(key=key, lost=lost, causes={}, devices=("a", "b", "c"))


def test_the_first_lost_device_of_some_islands_is_the_cause() -> None:
    whole, one, two = island({}), island({1: "burned"}, "island1"), island({2: "froze", 0: "burned"}, "island2")
    assert lost_among([whole]) is None
    assert lost_among([whole, one, two]) == Poison(DeviceLost(island="island1", device=1, reason="burned"))
    assert lost_among([one, two], {"a"}) == Poison(DeviceLost(island="island2", device=0, reason="burned"))
    assert lost_among([one], {"a", "c"}) is None


def test_a_lost_device_has_the_error_that_says_more_if_there_is_one() -> None:
    one = island({1: "burned"})
    one.causes[1] = POISON.cause
    assert lost_poison(one, 1) == POISON
    away = lost_poison(one, 2).cause
    assert isinstance(away, DeviceLost) and away.reason == "it was lost for some time" and away.device == 2
