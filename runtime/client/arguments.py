"""Binding the arguments of one run to its slots: which are donated, which are shared, which are copied first."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pathways.dialect.activities import BYTES, Activity
from pathways.runtime.client.arrays import copied, is_any_array
from pathways.runtime.client.inputs import as_host
from pathways.runtime.client.ports import Input
from pathways.runtime.client.store import Handle, Store, StoredBuffer


class Bound:
    """The arguments of one run: buffers that clients hold, by slot, and the handles that they give up."""

    __slots__ = ("claims", "kept", "owners", "taken")

    def __init__(self) -> None:  # by hand: one a run, and a generated one takes five times as long
        self.owners: dict[int, StoredBuffer] = {}
        self.taken: list[Handle] = []
        self.claims: list[Handle] = []
        """Handles whose buffers the run overwrites: nothing else may read them from now on."""
        self.kept: list[StoredBuffer] = []
        """Buffers that the run reads while other runs may enqueue in between: those must not overwrite them."""


class Binder:
    """Binds the arguments of every run of one plan. `pauses`: other runs may be enqueued while one is."""

    def __init__(self, program: str, inputs: Sequence[Input | None], store: Store, pauses: bool) -> None:
        self._program = program
        self._inputs = inputs
        self._store = store
        self._pauses = pauses
        self._donates = any(wanted is not None and wanted.port.donated for wanted in inputs)
        self._sizes = tuple(0 if wanted is None else wanted.type.bytes for wanted in inputs)
        self.may_be_large = sum(self._sizes) >= LARGE
        """Whether inputs from the host may take their time: `bind_and_report` is for such plans."""

    def bind_and_report(
        self, bound: Bound, values: list[Any], arguments: Sequence[Any], handles: Sequence[Handle | None]
    ) -> None:
        """Binds as `bind` does, and reports how much of what comes from the host is on its way to devices."""
        size = sum(size for size, handle in zip(self._sizes, handles, strict=True) if handle is None)
        if size < LARGE:
            self.bind(bound, values, arguments, handles)
            return
        with Activity(f"sending inputs of {self._program}", size, BYTES) as sending:
            self.bind(bound, values, arguments, handles, sending)

    def bind(
        self,
        bound: Bound,
        values: list[Any],
        arguments: Sequence[Any],
        handles: Sequence[Handle | None],
        sending: Activity | None = None,
    ) -> None:
        """Puts the arguments into their slots; `bound` lists all that the run holds, also where this fails half way."""
        store = self._store
        used = Counter(id(h.buffer) for h in handles if h is not None) if self._donates else _NONE
        for wanted, value, handle in zip(self._inputs, arguments, handles, strict=True):
            if wanted is None:
                continue
            port, index = wanted.port, wanted.index
            if handle is None:
                values[index] = wanted.put(as_host(value, port, self._program))
                if sending is not None:
                    sending.done += wanted.type.bytes
                continue
            array = wanted.arrive(handle)
            buffer = handle.buffer
            in_place = array is buffer.array
            if in_place and port.donated and is_any_array(array):
                if used[id(buffer)] > 1 or not store.claim(handle, self._program, bound.claims):
                    array = copied(array, wanted.side)
            elif in_place and not port.donated:
                bound.owners[index] = buffer
            if port.donated:
                bound.taken.append(handle)
            values[index] = array
        if self._pauses:
            store.keep(bound.owners.values(), bound.kept)


_NONE: Counter[int] = Counter()
LARGE = 64 << 20
"""Bytes of inputs that take their time on the way to devices."""
