"""A store of buffers without devices, whose bytes are counted, for the tests of handles."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.store import Store
from pathways.runtime.client_state import ClientState, current_client

SHARDING = Sharding(MeshSpec((("x", 1),), (0,)), ((),))


class World:
    """A store whose bytes on devices are counted, and the client of this context."""

    def __init__(self) -> None:
        self.client = ClientState("mine", number=5)
        self.bytes: dict[Any, int] = {}
        self.store = Store(changed=self.count)

    def count(self, devices: Any, size: int, client: str, run: int) -> None:
        for device in devices:
            self.bytes[device] = self.bytes.get(device, 0) + size

    def buffer(self, array: Any = None, **more: Any) -> StoredBuffer:
        devices = more.pop("devices", ("d0", "d1"))
        kind = KindOfBuffer(ArrayType((4,), "int8"), "int8", SHARDING, devices, 4)
        given: dict[str, Any] = {"name": "x", "origin": ("f", "island0", None), "client": self.client}
        return StoredBuffer(array, kind, **(given | more))

    def hold(self, array: Any = None, **more: Any) -> Handle:
        return self.store.hold(self.buffer(object() if array is None else array, **more))


@contextmanager
def stored_world() -> Generator[World]:
    """Makes a store, whose client is that of this context for the length of a block."""
    found = World()
    token = current_client.set(found.client)
    yield found
    current_client.reset(token)


def code_of_read(handle: Handle) -> str:
    with pytest.raises(PathwaysError) as caught:
        handle.array()
    return str(caught.value.code)
