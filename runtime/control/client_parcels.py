"""Checks what a client sends to islands by the controller, as a whole, before it is in line."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import frame_bytes, read_frames
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import check_fields

BEHIND = (m.PutPoison, m.CopyArray, m.FreeArrays, m.UnloadPlan)
"""The messages that a client may send to an island after its runs there."""
BEFORE = (*BEHIND, m.PutArray)
"""The messages that may go to an island with a run, before it."""


class IslandParcel(NamedTuple):
    """The frames of a run for one island, as all of its hosts get them."""

    epoch: int
    before: bytes
    """What goes there also if the run is refused: later runs may take these arrays."""
    run: bytes

    @property
    def size(self) -> int:
        return len(self.before) + len(self.run)


class CheckedParcel(NamedTuple):
    """A parcel that is a client's own. `results`: the first id of the run's results."""

    parcel: IslandParcel
    results: int
    unloaded: Sequence[int]
    """The plans that it unloads."""


def checked_parcel(epoch: int, frames: bytes, told: m.Submit, client: int, transfers: int) -> CheckedParcel:
    """Checks what a client submits for one island, and gives the run a first transfer number of the controller's own.

    If a client used one number for two runs, hosts would drop the values of the second run as duplicates. Raises
    PWC0911 for messages that are not a run and what may go before it, PWC0916 where one names another client's.
    """
    match read_frames(frames):
        case [*before, m.RunPlan(plan=told.plan, run=told.run) as run] if all(isinstance(x, BEFORE) for x in before):
            for message in (*before, run):
                check_fields(message, client, f"client {client}")
            unloaded = [message.plan for message in before if isinstance(message, m.UnloadPlan)]
            written = b"".join(map(frame_bytes, before))
            made = IslandParcel(epoch, written, frame_bytes(replace(run, transfers=transfers)))
            return CheckedParcel(made, run.results, unloaded)
        case other:
            have = f"a parcel with {', '.join(type(message).__name__ for message in other) or 'nothing'}"
            raise PathwaysError(BadMessage(have_=have, rule="the run that it is submitted as"))


def check_behind(frame: bytes, client: int) -> m.Message:
    """Reads what goes behind runs. Raises PWC0911 for anything else, PWC0916 for what names another client's."""
    match read_frames(frame):
        case [message] if isinstance(message, BEHIND):
            check_fields(message, client, f"client {client}")
            return message
        case other:
            have = ", ".join(type(message).__name__ for message in other) or "nothing"
            raise PathwaysError(BadMessage(have_=have, rule="one message that may go behind runs"))
