"""What a client of a shared cluster tells its controller of a run, and when it need not do so at once."""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from pathways.runtime.client.hosts import StartedRun
from pathways.runtime.client.remote_gang import IslandHost
from pathways.runtime.client.shared_host import by_controller
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import pack_parcels

AHEAD, MOST_KEPT = 8, 4
"""Where more than the first of a client's runs are under way on all islands of another, so many may be kept until
something comes from the controller: the end of one of those, say. To wake it for each would take longer than a small
run, and the islands have work meanwhile."""


def submitted(
    run: StartedRun,
    inside: int,
    numbered: Mapping[Hashable, int],
    parcels: Sequence[tuple[int, IslandHost, m.RunPlan]],
) -> list[m.Message]:
    """What tells of a run, behind the ends of arrays on its islands; `parcels` are by the numbers of those.

    `inside` is the number of the client in this process, `numbered` has those of devices.
    """
    weight = 1.0 if run.request is None else run.request.weight
    memory = tuple([n for device, size in run.memory.items() for n in (numbered[device], size)])
    places = pack_parcels([(number, host.epoch, [message]) for number, host, message in parcels])
    said: list[m.Message] = [
        by_controller(number, host.epoch, ended) for number, host, _ in parcels for ended in host.take_ended()
    ]
    said.append(m.Submit(run.number, run.plan, inside, int(WEIGHT * weight), memory, places))
    return said


def are_ahead(hosts: Iterable[IslandHost]) -> bool:
    """Whether islands have so much to do for this client that one more run may come to them a little later."""
    return all(host.under_way > AHEAD for host in hosts)
