"""Describes each argument and result of a loaded plan: its buffer, its devices and its sharding there. It is computed
once when a plan is loaded. `LoadedPlan` uses it in every run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Port
from pathways.dialect.sharding import Sharding
from pathways.dialect.user_line import caller
from pathways.runtime.client.arrays import sharding_of
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import Engine, prepare_move
from pathways.runtime.client.store import Handle, StoredBuffer
from pathways.runtime.client_state import ClientState
from pathways.runtime.errors import WrongInput
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.run.poison import Origin, Poison


@dataclass(eq=False)
class Input:
    """The slot and layout of one argument. `number` is the input's number in the plan."""

    number: int
    port: Port
    index: int
    type: ArrayType
    side: Side
    program: str
    engine: Engine
    controller: Controller
    _placed: Sharding | None = None
    """Layout of the last argument that needed no move. The next argument probably has the same layout."""
    _moves: dict[Any, Callable[[Any], Any]] = field(default_factory=dict[Any, Callable[[Any], Any]])

    def put(self, array: "np.ndarray[Any, Any]") -> Any:
        """Copies an argument, in its stored form, to the location that the plan needs."""
        return self.engine.put(self.number, array, self.type, self.side)

    def is_in_place(self, buffer: StoredBuffer) -> bool:
        if buffer.devices != self.side.devices:
            return False
        if buffer.sharding is not self._placed:
            if not buffer.sharding.same_layout(self.side.local, self.type.shape):
                return False
            self._placed = buffer.sharding
        return True

    def arrive(self, handle: Handle) -> Any:
        """Returns a handle's array at the location that the plan needs, moved there if necessary."""
        buffer, array = handle.buffer, handle.array()
        self.check(buffer)
        if isinstance(array, Poison) or self.is_in_place(buffer):
            return array
        key = buffer.devices, buffer.sharding
        if key not in self._moves:
            source = Side(buffer.sharding, sharding_of(array), buffer.devices)
            self._moves[key] = prepare_move(self.controller, self.type, source, self.side)
        held, array = handle.share()  # a concurrent run may be donating it
        try:
            return array if isinstance(array, Poison) else self._moves[key](array)
        finally:
            held.drop()

    def check(self, buffer: StoredBuffer) -> None:
        """Raises PWC0501 for a buffer of a different shape or element type."""
        if buffer.dtype != self.port.dtype or buffer.type != self.type:
            have, need = f"{buffer.dtype} {list(buffer.type.shape)}", f"{self.port.dtype} {list(self.type.shape)}"
            error = WrongInput(name=self.port.name, program=self.program, have_=have, rule=need, where=caller())
            raise PathwaysError(error)


@dataclass(frozen=True, eq=False)
class Result:
    """The slot and layout of one result, and the computation that makes it."""

    port: Port
    index: int
    type: ArrayType
    side: Side
    origin: Origin
    pinned: bool

    @cached_property
    def bytes(self) -> int:
        """Returns the bytes on each of its devices."""
        return self.type.shard_bytes(self.side.local.shard_shape(self.type.shape))

    def stored(self, array: Any, client: ClientState, run: int) -> StoredBuffer:
        side, port = self.side, self.port
        return StoredBuffer(
            array, self.type, port.dtype, side.local, side.devices, port.name, self.origin, client, self.bytes, run,
            self.pinned,
        )  # fmt: skip
