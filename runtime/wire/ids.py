"""Whose an array is: its id is 64 bits, of which the upper 16 are the number of the client that chose it.

The client of a cluster that has only one is number 0. An id is chosen by who submits a run, before any host has heard
of it, so that one client could name another's: what comes from a client is checked here.
"""

from collections.abc import Iterable
from typing import assert_never

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import ForeignArray

COUNTER = 48
"""The bits of an id that a client counts."""
MOST_CLIENTS = 1 << 15
"""Ids are signed where they are written."""
MOST_RESULTS = 1 << 20
"""So many ids behind the first of a run's results must be its client's, too: more than any plan has results."""
MOST_RUNS = 1 << 46
"""So many runs of a client have numbers; behind them come those of moves of arrays between programs."""
NONE = -1
"""The id of an argument that nothing reads."""


def first_id(client: int) -> int:
    """The first id of a client; id 0 is none, since the controller takes it for no array."""
    if not 0 <= client < MOST_CLIENTS:
        raise ValueError(f"client {client} of at most {MOST_CLIENTS}")
    return (client << COUNTER) + 1


def client_of(array: int) -> int:
    """The number of the client that chose an id; negative for what is no id."""
    return array >> COUNTER


def arrays_in(message: m.Message) -> Iterable[int]:
    """The ids of arrays that a message names; of a run's results, the first and the last that there could be."""
    match message:
        case m.RunPlan():
            ends = (message.results, message.results + MOST_RESULTS - 1)
            return (*ends, *(a for a in message.arguments if a != NONE))
        case m.PutArray() | m.PutPoison() | m.FetchArray() | m.WriteArray() | m.ReadArray():
            return (message.array,)
        case m.CopyArray():
            return (message.source, message.target)
        case m.FreeArrays():
            return message.arrays
        case m.LoadPlan() | m.UnloadPlan() | m.Connect() | m.Fence() | m.Mend():
            return ()
        case m.Inject() | m.CountCosts() | m.Record() | m.TellTime() | m.CallRoll():
            return ()
        case m.Decided() | m.Undecided() | m.Reached():
            return ()
        case m.ComeIn() | m.Attach() | m.Flush() | m.Introduce() | m.Hold() | m.Ask() | m.TellStacks():
            return ()
        case m.Submit() | m.Relayed() | m.Cancel():  # what is inside: control/dispatcher.py
            return ()
        case m.ChangeIslands() | m.IslandCame() | m.IslandLeaves():
            return ()
        case m.Welcome() | m.Expect() | m.Forget() | m.HostGone() | m.HostCame() | m.RunRefused():
            return ()
        case m.CallBack() | m.Calling() | m.Returned():  # by numbers of the host, for each client its own
            return ()
        case m.Hello() | m.Answer() | m.Done() | m.Failed() | m.Hangs() | m.Missing() | m.Beat():
            return ()
        case _:
            assert_never(message)


def names_in(message: m.Message) -> Iterable[int]:
    """The ids of plans and runs that a message of one of several clients names."""
    match message:
        case m.Inject() | m.Record():
            return (first_id(message.client),)
        case m.Submit() | m.RunPlan():
            return (message.run, message.plan)
        case m.Cancel():
            return (message.run,)
        case m.LoadPlan() | m.UnloadPlan() | m.PutArray() | m.ReadArray() | m.CountCosts():
            return (message.plan,)
        case m.Introduce() if message.plan >= 0:
            return (message.plan,)
        case _:
            return ()


def check_names(message: m.Message, client: int, who: str) -> None:
    """Raises PWC0916 for a message of one of several clients that names an array, a run or a plan of another."""
    check_arrays(message, client, who)
    for number in names_in(message):
        if (owner := client_of(number)) != client:
            what = type(message).__name__
            raise PathwaysError(ForeignArray(who=who, message=what, number=number, owner=owner, client=client))


def check_arrays(message: m.Message, client: int, who: str) -> None:
    """Raises PWC0916 for a message of a client, `who` by its certificate, that names an array of another."""
    for array in arrays_in(message):
        if (owner := client_of(array)) != client:
            what = type(message).__name__
            raise PathwaysError(ForeignArray(who=who, message=what, number=array, owner=owner, client=client))
