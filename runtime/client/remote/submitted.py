"""Makes the messages by which a client submits runs and reports memory, and decides when one may be delayed."""

import contextlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import chain

from pathways.runtime.client.remote.hosts import RunParcel, StartedRun
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT

AHEAD, MOST_KEPT = 8, 4
"""While more than AHEAD runs of a client are in flight on each island of a run, up to MOST_KEPT submitted runs are kept
until the controller sends something. Waking the controller for each takes longer than a small run, and the islands have
work meanwhile."""


def submitted(run: StartedRun, inside: int) -> m.Submit:
    """Makes the message that submits a run, but for its parcels.

    `inside` is the number of the client in this process.
    """
    weight = 1.0 if run.request is None else run.request.weight
    memory = tuple([n for device, size in run.memory.items() for n in (device.number, size)])
    return m.Submit(run.number, run.plan, inside, int(WEIGHT * weight), memory, b"")


def parcels_of(parcels: Mapping[int, RunParcel]) -> list[tuple[int, int, list[m.Message]]]:
    """Lists the messages of a run to each island, by its number and epoch, with the ends of arrays there."""
    return [
        (number, host.epoch, [*before, *host.take_ended(), message])
        for number, (host, before, message) in parcels.items()
    ]


def are_ahead(hosts: Iterable[RemoteIsland]) -> bool:
    """Whether islands have so much to do for this client that one more run may come to them a little later."""
    return all(host.under_way > AHEAD for host in hosts)


class HeldBytes:
    """Sums the bytes held since the controller was last told. Any thread may add, also while it collects garbage."""

    def __init__(self) -> None:
        self._added: deque[tuple[tuple[str, int], int, int]] = deque()

    def add(self, client: str, run: int, device: int, size: int) -> None:
        self._added.append(((client, run), device, size))

    def take(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """By client inside of the process, and run: the numbers of devices, and bytes, in pairs."""
        if not self._added:
            return {}
        held: dict[tuple[str, int], Counter[int]] = {}
        with contextlib.suppress(IndexError):
            while True:
                of, device, size = self._added.popleft()
                held.setdefault(of, Counter())[device] += size
        pairs = {of: [(device, size) for device, size in sizes.items() if size] for of, sizes in held.items()}
        return {of: tuple(chain.from_iterable(found)) for of, found in pairs.items() if found}
