"""Makes the results of a call whose computations are not enqueued yet, for example because a loop waits for data. The
client holds handles that are filled later. `LoadedPlan` creates them.
"""

from collections.abc import Mapping, Sequence

from pathways.runtime.client.arrays import is_any_array
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.ports import Input, Result
from pathways.runtime.client.store import Store
from pathways.runtime.host.run.background import Promise


class PromisedResults:
    """One handle per result. An argument that is returned unchanged, and a constant, have their arrays already."""

    def __init__(
        self,
        promise: Promise,
        results: Sequence[Result],
        store: Store,
        passed_on: Mapping[int, StoredBuffer],
    ) -> None:
        """`passed_on`: buffers of the arguments and constants that are returned unchanged, by slot."""
        self._promise = promise
        self._results = results
        self._store = store
        self._promised: dict[int, StoredBuffer] = {}
        self.handles = [store.hold(passed_on.get(r.index) or self._buffer(r)) for r in results]

    def _buffer(self, result: Result) -> StoredBuffer:
        if result.index not in self._promised:
            promise = self._promise
            self._promised[result.index] = result.stored(promise, promise.client, promise.number)
        return self._promised[result.index]

    def keep(self, made: Sequence[Handle]) -> None:
        """Replaces the promise by the arrays that the run made, and wakes the threads that wait for them."""
        for result, handle in zip(self._results, made, strict=True):
            buffer = self._promised.get(result.index)
            if buffer is not None:
                array = handle.buffer.array
                counts = is_any_array(array) and not buffer.pinned
                self._store.replace(buffer, self._promise, array, held=counts)
        self._promise.resolve()


def passed_on(inputs: Sequence[Input | None], held: Sequence[Handle | None]) -> dict[int, StoredBuffer]:
    """Returns, by slot, the buffers of arguments that are already in place and are not donated."""
    return {
        wanted.index: handle.buffer
        for wanted, handle in zip(inputs, held, strict=True)
        if wanted is not None and handle is not None
        if not wanted.port.donated and wanted.is_in_place(handle.buffer)
    }
