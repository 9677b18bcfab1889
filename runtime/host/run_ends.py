"""What a controller is told of the end of a run on a host."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.load.loaded_part import HostPart, PartResult
from pathways.runtime.host.observe.numbers import NumbersOnHost
from pathways.runtime.host.posting import ClientPost
from pathways.runtime.host.run.failures import why_failed
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.journal import note
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import client_of

MAX_ISLANDS_TELLING = 8
"""The hosts of a run tell its client of its end themselves if its plan has at most this many islands."""


class PostAll(Protocol):
    """Sends messages to the controller, in this order; any thread may call it."""

    def __call__(self, *messages: m.Message) -> None: ...


def end_of_run(
    number: int, seconds: float, results: Sequence[tuple[PartResult, Any]], numbers: NumbersOnHost | None
) -> m.Done | m.Failed:
    """The end of a run that kept its devices busy for so long, and which of its results will never be there."""
    causes: dict[str, str] = {}
    for result, value in results:
        if (cause := why_failed(value, result.origin)) is not None:
            causes[str(result.number)] = write_diagnostic(cause)
    note("run", number, f"ended, {len(causes)} bad results" if causes else "ended")
    spent = int(seconds * 1e9)
    if numbers is not None and numbers.found is not None:
        return m.Failed(number, spent, causes, write_diagnostic(numbers.found), numbers.step)
    return m.Failed(number, spent, causes) if causes else m.Done(number, spent)


def told_directly(said: m.Done | m.Failed, plan: Plan, clients: Mapping[int, ClientPost]) -> m.Done | m.Failed:
    """Sends the end of a run to its client, which saves two wakeups; returns what the controller is told.

    Of a run on many hosts the controller tells the client, which then reads one stream. So it does if the client is not
    connected here, has not read what was sent to it, or has the controller in its own process: client 0.
    """
    number = client_of(said.run)
    client = clients.get(number) if len(plan.streams) <= MAX_ISLANDS_TELLING else None
    if client is None or not number or not client.post_if_taken(said):
        return said
    return msgspec.structs.replace(said, is_told=True)


def is_done(part: HostPart, results: Sequence[tuple[PartResult, Any]]) -> bool:
    """Whether a run is done already, as the results show that its only launch has made."""
    return part.shows_end and all(_is_ready(value) for _, value in results)


def _is_ready(value: Any) -> bool:
    if isinstance(value, Poison):
        return False
    return (isinstance(value, Shards) or not value.is_deleted()) and bool(value.is_ready())
