"""Tests the object store in isolation."""

from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer, Suspended
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.store import Store
from pathways.runtime.client_state import MAIN
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Poison

SHARDING = Sharding(MeshSpec((("x", 1),), (0,)), ((),))


class Device:
    """A device whose comparison drops a handle, as the garbage collector may do at any allocation."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def __eq__(self, other: object) -> bool:
        if self.handles:
            self.handles.pop()
        return False

    __hash__ = object.__hash__


def filled(count: int, device: Any) -> Store:
    store = Store()
    for number in range(count):
        kind = KindOfBuffer(ArrayType((4,), "int8"), "int8", SHARDING, (device,), 4)
        buffer = StoredBuffer(object(), kind, "x", ("f", "island0", None), MAIN, number)
        device.handles.append(store.hold(buffer))
    return store


def test_handles_may_be_dropped_during_an_iteration_over_all_buffers() -> None:
    device = Device()
    store = filled(4, device)
    assert store.owners_on("another") == {} and len(store.of(MAIN)) < 4
    store = filled(4, device)
    store.lose("another", Poison(ComputationFailed(computation="f", island="island0", cause="lost")))
    assert len(store.of(MAIN)) < 4
    device.handles.clear()
    assert store.bytes == 0


def held(store: Store, array: Any) -> tuple[StoredBuffer, Handle]:
    kind = KindOfBuffer(ArrayType((4,), "int8"), "int8", SHARDING, ("d0",), 4)
    buffer = StoredBuffer(array, kind, "x", ("f", "island0", None), MAIN)
    return buffer, store.hold(buffer)


def test_bytes_are_counted_while_they_are_on_a_device() -> None:
    """Bytes of a suspended array are not counted, and bytes of a shared array are counted once."""
    counted: list[int] = []
    store = Store(changed=lambda _devices, size, _client, _run: counted.append(size))
    buffer, first = held(store, object())
    second, _ = store.share(first)
    assert counted == [4] and store.owners_on("d0") == {MAIN.label: 4} and store.owners_on("d1") == {}
    here, away = buffer.array, Suspended(MAIN.label)
    assert store.replace(buffer, here, away, held=False) and counted == [4, -4] and store.owners_on("d0") == {}
    assert not store.replace(buffer, here, here, held=True)  # another thread replaced the value first
    assert store.replace(buffer, away, here, held=True) and counted == [4, -4, 4]
    first.drop()
    first.drop()
    assert counted == [4, -4, 4] and store.owners_on("d0") == {MAIN.label: 4}
    second.drop()
    assert counted == [4, -4, 4, -4] and store.bytes == 0


def test_a_promise_takes_no_memory_until_it_is_fulfilled() -> None:
    counted: list[int] = []
    store = Store(changed=lambda _devices, size, _client, _run: counted.append(size))
    promise = Promise(0, "f", MAIN, False)
    buffer, handle = held(store, promise)
    assert counted == [] and store.owners_on("d0") == {}
    assert store.replace(buffer, promise, object(), held=True) and counted == [4]
    handle.drop()
    assert counted == [4, -4]
