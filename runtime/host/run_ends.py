"""Reports the end of a run on a host: to the controller, and directly to the client if that saves time. The report has
the device time and any errors. `Host` calls it.
"""

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
"""Maximum number of islands of a plan for which hosts report the end of a run directly to its client."""


class PostAll(Protocol):
    """Sends messages to the controller in order. Any thread may call it."""

    def __call__(self, *messages: m.Message) -> None: ...


def end_of_run(
    number: int, seconds: float, results: Sequence[tuple[PartResult, Any]], numbers: NumbersOnHost | None
) -> m.Done | m.Failed:
    """Returns the message that reports the end of a run, with its device time and its failed results."""
    causes: dict[str, str] = {}
    for result, value in results:
        if (cause := why_failed(value, result.origin)) is not None:
            causes[str(result.number)] = write_diagnostic(cause)
    note("run", number, f"ended, {len(causes)} failed results" if causes else "ended")
    spent = int(seconds * 1e9)
    if numbers is not None and numbers.found is not None:
        return m.Failed(number, spent, causes, write_diagnostic(numbers.found), numbers.step)
    return m.Failed(number, spent, causes) if causes else m.Done(number, spent)


def report_directly(message: m.Done | m.Failed, plan: Plan, clients: Mapping[int, ClientPost]) -> m.Done | m.Failed:
    """Sends the end of a run to its client, which saves two wakeups; returns the message for the controller.

    The controller notifies the client of a run on many hosts, so that the client reads only one stream. The controller
    also does so if the client is not connected here or has unread messages, or for the client in its own process (0).
    """
    number = client_of(message.run)
    client = clients.get(number) if len(plan.streams) <= MAX_ISLANDS_TELLING else None
    if client is None or not number or not client.post_if_taken(message):
        return message
    return msgspec.structs.replace(message, is_reported=True)


def is_done(part: HostPart, results: Sequence[tuple[PartResult, Any]]) -> bool:
    """Whether a run is already done, which the results of its only launch show."""
    return part.shows_end and all(_is_ready(value) for _, value in results)


def _is_ready(value: Any) -> bool:
    if isinstance(value, Poison):
        return False
    return (isinstance(value, Shards) or not value.is_deleted()) and bool(value.is_ready())
