"""Copies of a buffer are made once its run has made it; the copy of a failed result raises its error."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.codes import code_of

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.client import new_buffers
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.new_buffers import BufferPlace, NewBuffer, copy_buffer_shard
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Poison

SHARDING = Sharding(MeshSpec((("x", 1),), (0,)), ((),))
TYPE = ArrayType((4,), "int8")
DEVICE: Any = ("a", 0)


class World:
    """A client with a device whose arrays are any objects."""

    def __init__(self) -> None:
        self.controller, self.client = Controller(Machine("none")), ClientState("mine", number=5)
        self.controller.machine.bind("a", [DEVICE])

    def hold(self, array: Any) -> Handle:
        kind = KindOfBuffer(TYPE, "int8", SHARDING, (DEVICE,), 4)
        return self.controller.store.hold(StoredBuffer(array, kind, "x", ("f", "a", None), self.client))

    def copy(self, handle: Handle) -> Handle:
        place = BufferPlace(SHARDING, (DEVICE,))
        return copy_buffer_shard(
            self.controller, self.client, NewBuffer(TYPE, "int8", "copy", "a copy"), place, handle, 0
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()
    monkeypatch.setattr(new_buffers, "copied_shard", lambda array, position, type_: (array, position, type_))
    token = current_client.set(found.client)
    yield found
    current_client.reset(token)


def test_a_buffer_that_a_run_has_promised_is_copied_when_the_run_has_made_it(world: World) -> None:
    class Kept(Promise):
        """A promise that is kept while a thread waits for it."""

        def wait(self, timeout: float | None = None) -> bool:
            assert world.controller.store.replace(handle.buffer, self, "array", held=True)
            self.resolve()
            return super().wait(timeout)

    handle = world.hold(Kept(0, "f", world.client, False))
    copy = world.copy(handle)
    assert copy.array() == ("array", 0, TYPE) and copy.buffer.name == "copy"
    assert not handle.buffer.is_shared, "the copy does not keep the buffer"


def test_the_copy_of_a_failed_result_raises_its_error(world: World) -> None:
    handle = world.hold(Poison(ComputationFailed(computation="f", island="a", cause="a reason")))
    assert code_of(world.copy, handle) == "PWC0504"
    assert not handle.buffer.is_shared and not world.controller.run_queue.scheduler.entries
