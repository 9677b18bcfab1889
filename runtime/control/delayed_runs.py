"""Finds why each client's first queued run waits, for the status report of a cluster. A timer of the controller also
calls it, to refuse runs that can never start. Such a run needs memory that only arrays of its own client hold.
"""

from collections.abc import Collection

from pathways.dialect.topology import readable
from pathways.runtime.control.dispatcher import Dispatcher
from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.sessions import ClientSession
from pathways.runtime.control.wait_texts import before_it, lacking
from pathways.runtime.errors import MemoryHeld


def reasons_to_wait(dispatcher: Dispatcher, sessions: Collection[ClientSession]) -> dict[int, str]:
    """Returns why each client's first queued run waits, by client number."""
    reasons: dict[int, str] = {}
    for number in list(dispatcher.scheduler.waiting):
        run = dispatcher.runs.get(number)
        if run is not None and run.session.number not in reasons:
            reasons[run.session.number] = _why_waits(dispatcher, run.request, sessions)
    return reasons


def _why_waits(dispatcher: Dispatcher, request: Request, sessions: Collection[ClientSession]) -> str:
    ledger, devices = dispatcher.ledger, dispatcher.devices
    short = ledger.short_of(request.bytes)
    if short is None:
        return before_it(dispatcher.scheduler.goes_before(request.number))
    at = devices.number(short)
    held = {label: sizes[at] for session in sessions for label, sizes in session.held.items()}
    return lacking(devices[at][0], request.bytes[short] - ledger.free(short), held)


def refuse_hopeless(dispatcher: Dispatcher, sessions: Collection[ClientSession]) -> None:
    """Refuses runs that wait for memory held only by arrays of their own client (PWC0507)."""
    ledger, devices = dispatcher.ledger, dispatcher.devices
    for number, request in list(dispatcher.scheduler.waiting.items()):
        device = dispatcher.scheduler.lacks_memory(number)
        run = dispatcher.runs.get(number)
        if device is None or run is None:
            continue
        at = devices.number(device)
        owners = [each for each in sessions if sum(held[at] for held in each.held.values()) > 0]
        if owners == [run.session]:
            mine = sum(held[at] for held in run.session.held.values())
            cause = MemoryHeld(
                program=request.program, island=devices[at][0], size=readable(request.bytes[device]),
                free=readable(ledger.free(device)), limit=readable(ledger.limits[device]),
                held=readable(mine), client=request.client,
            )  # fmt: skip
            dispatcher.cancel(number, cause)
