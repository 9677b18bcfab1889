"""What a client of a shared cluster tells its controller of a run, and when it need not do so at once."""

from collections.abc import Iterable, Mapping

from pathways.runtime.client.hosts import RunParcel, StartedRun
from pathways.runtime.client.remote_island import RemoteIsland
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT

AHEAD, MOST_KEPT = 8, 4
"""Where more than the first of a client's runs are under way on all islands of another, so many may be kept until
something comes from the controller: the end of one of those, say. To wake it for each would take longer than a small
run, and the islands have work meanwhile."""


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
