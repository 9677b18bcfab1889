"""Checks what a client sends to islands by the controller, as a whole, before it is in line."""

from msgspec.structs import replace

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import frame_bytes, read_frames
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import check_fields

BEHIND = (m.PutPoison, m.CopyArray, m.FreeArrays, m.UnloadPlan)
"""The messages that a client may send to an island after its runs there."""


def checked_run(frames: bytes, told: m.Submit, client: int, transfers: int) -> tuple[int, bytes]:
    """Returns the first id of a run's results, and its frame with a first transfer number of the controller's own.

    If a client used one number for two runs, hosts would drop the values of the second run as duplicates. Raises
    PWC0911 for what is not a run's message to a host, PWC0916 where it names what is another client's.
    """
    match read_frames(frames):
        case [m.RunPlan(plan=told.plan, run=told.run) as run]:
            check_fields(run, client, f"client {client}")
            return run.results, frame_bytes(replace(run, transfers=transfers))
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
