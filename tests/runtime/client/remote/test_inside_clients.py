"""Clients inside of a process have numbers at its controller, which is told when they come and go."""

import threading

from pathways.runtime.client.remote.inside_clients import InsideClients
from pathways.runtime.wire import messages as m


def test_the_controller_hears_of_a_client_once_and_of_its_end() -> None:
    told: list[m.Message] = []
    clients = InsideClients(told.append, threading.Lock())
    assert [clients.number(label) for label in ("ann", "bob", "ann")] == [0, 1, 0]
    clients.retire("ann")
    clients.retire("nobody")
    assert len(told) == 2, "it is told later, after what the client held"
    clients.report_retired(clients.take_closed())
    clients.report_retired(clients.take_closed())
    assert told[2:] == [m.Retire(0)]
    assert clients.number("ann") == 2, "no number is used again"
