"""Defines a buffer that a client holds: its content, its type and its location. Equal types and locations are one
object, so that a call can compare its arguments with what the plan needs by identity. The store (`store.py`) holds the
buffers.
"""

import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Sharding
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.run.poison import Origin
from pathways.runtime.states import BUFFER, Begun, Life


@dataclass(frozen=True, eq=False)
class Suspended:
    """The content of a buffer whose values left device memory because its client was suspended."""

    client: str


@dataclass(frozen=True)
class KindOfBuffer:
    """The type and the location of a buffer. `dtype` is the user-visible type, for example `key<fry>` for PRNG keys."""

    type: ArrayType
    dtype: str
    sharding: Sharding
    devices: tuple[Hashable, ...]
    bytes: int
    """Bytes on each of its devices."""


NEW, MADE = BUFFER.begun(), BUFFER.begun("hold")
"""The beginnings of a buffer, and of a buffer whose array a run has just made."""
_KINDS: "weakref.WeakValueDictionary[tuple[Any, ...], KindOfBuffer]" = weakref.WeakValueDictionary()


def interned(kind: KindOfBuffer) -> KindOfBuffer:
    """Returns one shared object for equal kinds, so that a call can compare its arguments by identity.

    Two threads may get two objects. Then the kinds look different, and a call takes the general path.
    """
    key = kind.type, kind.dtype, kind.sharding, kind.devices, kind.bytes  # the kind itself would keep itself alive
    return _KINDS.setdefault(key, kind)


class StoredBuffer(Life):
    """One logical buffer: the array (or its promise, or poison), its kind, and the number of handles that hold it.

    `pinned`: a plan holds it too (a constant). `run`: the number of the run that made it. The store's lock guards its
    state (runtime/states.py).
    """

    __slots__ = ("array", "client", "counted", "holders", "kind", "name", "origin", "pinned", "plain", "run")

    def __init__(  # by hand: each call makes one, and a generated method takes longer
        self,
        array: Any,
        kind: KindOfBuffer,
        name: str,
        origin: Origin,
        client: ClientState,
        run: int = -1,
        pinned: bool = False,
        begun: Begun = NEW,
    ) -> None:
        self._states, self.state, self._events = begun
        self.array = array
        self.kind = kind
        self.name = name
        self.origin = origin
        self.client = client
        self.run = run
        self.pinned = pinned
        self.holders = 0
        self.counted = False
        """Whether its bytes are counted as held on its devices."""
        self.plain: weakref.ref[Any] | None = None
        """Its only handle, if the store does not count that (store.py)."""

    @property
    def type(self) -> ArrayType:
        return self.kind.type

    @property
    def dtype(self) -> str:
        return self.kind.dtype

    @property
    def sharding(self) -> Sharding:
        return self.kind.sharding

    @property
    def devices(self) -> tuple[Hashable, ...]:
        return self.kind.devices

    @property
    def bytes(self) -> int:
        """Returns the bytes on each of its devices."""
        return self.kind.bytes

    @property
    def is_shared(self) -> bool:
        return self.pinned or self.holders > 1
