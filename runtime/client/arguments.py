"""Assigns the arguments of one call to the buffers that the plan expects. A donated argument is handed over, a shared
one is only read, and others are copied first. `LoadedPlan` calls it for every run.

`LoadedPlan` has one `Binder` per plan and one `Bound` per run.
"""

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from pathways.dialect.activities import BYTES, Activity
from pathways.runtime.client.arrays import copied, is_any_array
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.inputs import as_host
from pathways.runtime.client.ports import Input
from pathways.runtime.client.store import Store
from pathways.runtime.client_state import current_client


class Bound:
    """The bound arguments of one run: client buffers by slot, and the handles that the run consumes."""

    __slots__ = ("claims", "kept", "owners", "taken")

    def __init__(self) -> None:  # by hand: one object per run, and a generated method takes five times as long
        self.owners: dict[int, StoredBuffer] = {}
        self.taken: list[Handle] = []
        self.claims: list[Handle] = []
        """Handles whose buffers the run overwrites. No other run may read these buffers from now on."""
        self.kept: list[StoredBuffer] = []
        """Buffers that the run reads while other runs may be enqueued. Those runs must not overwrite the buffers."""


class Binder:
    """Binds the arguments of all runs of one plan. `pauses`: other runs may be enqueued during a run."""

    def __init__(self, program: str, inputs: Sequence[Input | None], store: Store, pauses: bool) -> None:
        self._program = program
        self._inputs = inputs
        self._store = store
        self._pauses = pauses
        self._donates = any(wanted is not None and wanted.port.donated for wanted in inputs)
        self._sizes = tuple(0 if wanted is None else wanted.type.bytes for wanted in inputs)
        self.may_be_large = sum(self._sizes) >= LARGE_ARGUMENT_BYTES
        """Whether copying host inputs may take long. Such plans use `bind_and_report`."""

    def bind_and_report(
        self, bound: Bound, values: list[Any], arguments: Sequence[Any], handles: Sequence[Handle | None]
    ) -> None:
        """Binds arguments like `bind`, and reports progress of host-to-device copies."""
        size = sum(size for size, handle in zip(self._sizes, handles, strict=True) if handle is None)
        if size < LARGE_ARGUMENT_BYTES:
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
        """Stores the arguments in their slots. `bound` lists all that the run holds, even if binding fails halfway."""
        store, client = self._store, current_client.get()
        twice = _held_twice(handles) if self._donates else ()
        overwritten: dict[Handle, Input] = {}
        for wanted, value, handle in zip(self._inputs, arguments, handles, strict=True):
            if wanted is None:
                continue
            port, index = wanted.port, wanted.index
            if handle is None:
                values[index] = wanted.put(as_host(value, port, self._program))
                if sending is not None:
                    sending.done += wanted.type.bytes
                continue
            buffer = handle.buffer
            array = buffer.array
            is_computed = is_any_array(array)
            may_read = buffer.client is client and handle.taken_by is None
            if not may_read or not is_computed or buffer.kind is not wanted.placed:
                array = wanted.arrive(handle)
                is_computed = is_any_array(array)
            in_place = array is buffer.array
            if port.donated:
                bound.taken.append(handle)
                if in_place and is_computed:
                    if buffer in twice:
                        array = copied(array, wanted.side)
                    else:
                        overwritten[handle] = wanted
            elif in_place:
                bound.owners[index] = buffer
            values[index] = array
        for handle in store.claim(overwritten, self._program, bound.claims) if overwritten else ():
            handle.array()  # raises if another thread has donated or deleted it meanwhile
            wanted = overwritten[handle]
            values[wanted.index] = copied(values[wanted.index], wanted.side)
        if self._pauses:
            store.keep(bound.owners.values(), bound.kept)


def _held_twice(handles: Sequence[Handle | None]) -> Container[StoredBuffer]:
    """Returns the buffers that several arguments hold. A run that overwrites one of them must copy it."""
    buffers = [h.buffer for h in handles if h is not None]
    if len(set(buffers)) == len(buffers):
        return ()
    return {buffer for buffer, count in Counter(buffers).items() if count > 1}


LARGE_ARGUMENT_BYTES = 64 << 20
"""Host inputs of at least this many bytes are copied with a progress report."""
