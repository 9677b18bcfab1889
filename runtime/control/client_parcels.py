"""Checks the messages that a client sends to hosts through the controller of a cluster. A client may name only its own
arrays and plans. The dispatcher calls it before it queues the messages.

An invalid parcel is rejected as a whole.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import MAX_CARRIED_BYTES
from pathways.runtime.wire.encoding import MAX_NUMBERS_BYTES, Parcel, frame_bytes, read_frames, read_parcels
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import check_fields

AFTER_RUN = (m.PutPoison, m.CopyArray, m.FreeArrays, m.UnloadPlan)
"""Message types that a client may send to an island after its runs there."""
BEFORE = (*AFTER_RUN, m.PutArray)
"""Message types that may precede a run in its parcel."""
MAX_BEFORE_BYTES = 1 << 21
"""Maximum bytes of the messages that precede a run."""


class IslandParcel(NamedTuple):
    """The frames of a run for one island, as all hosts of the island receive them."""

    epoch: int
    before: bytes
    """Frames sent to the hosts even if the run is refused: later runs may read these arrays."""
    run: bytes

    @property
    def size(self) -> int:
        return len(self.before) + len(self.run)


class _Checked(NamedTuple):
    """The checked frames of a parcel, the first id of its run's results, and the plans that it unloads."""

    before: bytes
    run: bytes
    results: int
    unloaded: Sequence[int]


def sent_parcels(submitted: m.Submit, client: int, transfers: int) -> tuple[dict[int, IslandParcel], int, list[int]]:
    """Checks the parcels of a client's run, and sets the run's first transfer number, `transfers`.

    If a client chose that number and used it for two runs, hosts would drop the values of the second run as duplicates.
    Returns the same values as `own_parcels`. Raises PWC0911 for invalid or misplaced messages, PWC0916 if a message
    names an id of another client.
    """
    found: dict[int, IslandParcel] = {}
    unloaded: list[int] = []
    first = 0
    known: dict[bytes, _Checked] = {}
    for island, epoch, frames in read_parcels(submitted.blob):
        if island in found:
            raise _bad(f"two parcels for island {island}", "one parcel")
        if frames not in known:  # islands that take no arguments get the same frames
            known[frames] = _check_frames(frames, submitted, client, transfers)
        checked = known[frames]
        first = checked.results
        found[island] = IslandParcel(epoch, checked.before, checked.run)
        unloaded += checked.unloaded
    return found, first, unloaded


def _check_frames(frames: bytes, submitted: m.Submit, client: int, transfers: int) -> _Checked:
    messages = read_frames(frames, (*BEFORE, m.RunPlan))
    before, run = messages[:-1], messages[-1] if messages else None
    if not isinstance(run, m.RunPlan) or (run.plan, run.run) != (submitted.plan, submitted.run):
        raise _bad("a parcel without its run", "the submitted run, as the last message")
    if any(isinstance(message, m.RunPlan) for message in before):
        raise _bad("a parcel with two runs", "only the submitted run")
    for message in messages:
        check_fields(message, client, f"client {client}")
    made = _run_frame(replace(run, transfers=transfers))
    if not before:  # most runs
        return _Checked(b"", made, run.results, ())
    carried = sum(len(message.blob) for message in before if isinstance(message, m.PutArray))
    written = b"".join(map(frame_bytes, before))
    if carried > MAX_CARRIED_BYTES or len(written) > MAX_BEFORE_BYTES:
        have = f"{carried:,} bytes of arguments, {len(written):,} bytes in total before a run"
        raise _bad(have, f"at most {MAX_CARRIED_BYTES:,}, and {MAX_BEFORE_BYTES:,} in total")
    unloaded = [message.plan for message in before if isinstance(message, m.UnloadPlan)]
    return _Checked(written, made, run.results, unloaded)


def own_parcels(parcels: Iterable[Parcel]) -> tuple[dict[int, IslandParcel], int, list[int]]:
    """Encodes a run of the client in this process.

    Returns its parcels by island, the first id of its results, and the plans that it unloads. Raises PWC0911 for a run
    that exceeds the maximum message size.
    """
    found: dict[int, IslandParcel] = {}
    unloaded: list[int] = []
    first = 0
    for island, epoch, (*before, run) in parcels:
        assert isinstance(run, m.RunPlan)
        first = run.results
        found[island] = IslandParcel(epoch, b"".join(map(frame_bytes, before)), _run_frame(run))
        unloaded += [each.plan for each in before if isinstance(each, m.UnloadPlan)]
    return found, first, unloaded


def _run_frame(run: m.RunPlan) -> bytes:
    made = frame_bytes(run)
    if len(made) > MAX_NUMBERS_BYTES:  # its host would close the controller's connection
        raise _bad(f"a run of {len(made):,} bytes", f"at most {MAX_NUMBERS_BYTES:,} bytes")
    return made


def check_after_run(frame: bytes, client: int) -> m.Message:
    """Decodes a message to be sent after runs. Raises PWC0911 for other messages, PWC0916 for foreign ids."""
    match read_frames(frame, AFTER_RUN):
        case [message]:
            check_fields(message, client, f"client {client}")
            return message
        case other:
            raise _bad(f"{len(other)} messages", "one message that may follow runs")


def _bad(have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadMessage(have_=have, rule=rule))
