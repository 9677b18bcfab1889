"""The object store alone."""

from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.clients import MAIN
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.run.store import Handle, Poison, Store, StoredBuffer

SHARDING = Sharding(MeshSpec((("x", 1),), (0,)), ((),))


class Device:
    """Whoever compares it drops a handle, as the garbage collector does at any allocation."""

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
        buffer = StoredBuffer(
            object(), ArrayType((4,), "int8"), "int8", SHARDING, (device,), "x", ("f", "island0", None), MAIN, 4, number
        )
        device.handles.append(store.hold(buffer))
    return store


def test_handles_may_die_while_somebody_looks_at_all_buffers() -> None:
    device = Device()
    store = filled(4, device)
    assert store.owners_on("another") == {} and len(store.of(MAIN)) < 4
    store = filled(4, device)
    store.lose("another", Poison(ComputationFailed(computation="f", island="island0", cause="lost")))
    assert len(store.of(MAIN)) < 4
    device.handles.clear()
    assert store.bytes == 0
