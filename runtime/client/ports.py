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
from pathways.dialect.user_line import caller
from pathways.runtime.client.arrays import sharding_of
from pathways.runtime.client.buffers import NEW, KindOfBuffer, StoredBuffer, interned
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import Engine, prepare_move
from pathways.runtime.client.handles import Handle
from pathways.runtime.client_state import ClientState
from pathways.runtime.errors import WrongInput
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.run.poison import Origin, Poison
from pathways.runtime.states import Begun


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
    placed: KindOfBuffer = field(init=False)
    """The kind of the last argument that needed no move. The next argument probably has the same kind."""
    _moves: dict[Any, Callable[[Any], Any]] = field(default_factory=dict[Any, Callable[[Any], Any]])

    def __post_init__(self) -> None:
        self.placed = _kind(self.type, self.port, self.side)

    @cached_property
    def put(self) -> "Callable[[np.ndarray[Any, Any]], Any]":
        """Copies an argument, in its stored form, to the location that the plan needs."""
        return self.engine.prepare_put(self.number, self.type, self.side)

    def is_in_place(self, buffer: StoredBuffer) -> bool:
        if buffer.kind is self.placed:
            return True
        there = buffer.devices == self.side.devices and buffer.sharding.same_layout(self.side.local, self.type.shape)
        if there and self._fits(buffer):
            self.placed = buffer.kind
        return there

    def _fits(self, buffer: StoredBuffer) -> bool:
        return buffer.dtype == self.port.dtype and buffer.type == self.type

    def arrive(self, handle: Handle) -> Any:
        """Returns a handle's array at the location that the plan needs, moved there if necessary."""
        buffer, array = handle.buffer, handle.array()
        if buffer.kind is self.placed:
            return array
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
        if not self._fits(buffer):
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
    def kind(self) -> KindOfBuffer:
        return _kind(self.type, self.port, self.side)

    def stored(self, array: Any, client: ClientState, run: int, begun: Begun = NEW) -> StoredBuffer:
        return StoredBuffer(array, self.kind, self.port.name, self.origin, client, run, self.pinned, begun)


def _kind(type_: ArrayType, port: Port, side: Side) -> KindOfBuffer:
    size = type_.shard_bytes(side.local.shard_shape(type_.shape))
    return interned(KindOfBuffer(type_, port.dtype, side.local, side.devices, size))
