"""Checks what a client sends to islands by the controller, as a whole, before it is in line."""

import struct

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import MESSAGES, decode
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import MOST_TRANSFERS, check_fields
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.ids import COUNTER, MOST_RESULTS, NONE

BEHIND = (m.PutPoison, m.CopyArray, m.FreeArrays, m.UnloadPlan)
"""Lists the messages that a client may send to an island behind its runs."""
_RUN = MESSAGES.index(m.RunPlan)
_SINGLE = 5
"""The numbers of a RunPlan before those of its arguments: its plan, itself, transfers, results, what is wanted."""


def checked_run(kind: int, payload: bytes, told: m.Submit, client: int, transfers: int) -> tuple[int, bytes]:
    """Returns the first id of a run's results, and its message with a first transfer number of the controller's own.

    If a client used one number for two runs, hosts would drop the values of the second run as duplicates. Raises
    PWC0911 for what is not a run's message to a host, PWC0916 where it names what is another client's.
    """
    fits = kind == _RUN and len(payload) % 8 == 0 and len(payload) >= 8 * _SINGLE
    numbers = struct.unpack(f"<{len(payload) // 8}q", payload) if fits else (0,) * _SINGLE
    if not fits or numbers[:2] != (told.plan, told.run):
        raise PathwaysError(BadMessage(have_=f"a parcel of kind {kind}", rule="the run that it is submitted as"))
    named = (numbers[3], numbers[3] + MOST_RESULTS - 1, *numbers[_SINGLE:])
    if not 0 <= numbers[2] < MOST_TRANSFERS or numbers[4] or any(n != NONE and n >> COUNTER != client for n in named):
        check_fields(decode(kind, payload), client, f"client {client}")
    return numbers[3], payload[:16] + struct.pack("<q", transfers) + payload[24:]


def check_behind(frame: bytes, client: int) -> m.Message:
    """Reads what goes behind runs. Raises PWC0911 for anything else, PWC0916 for what names another client's."""
    if len(frame) < HEADER.size or len(frame) != HEADER.size + HEADER.unpack_from(frame)[0]:
        raise PathwaysError(BadMessage(have_=f"a frame of {len(frame)} bytes", rule="one whole frame"))
    message = decode(HEADER.unpack_from(frame)[1], frame[HEADER.size :])
    if not isinstance(message, BEHIND):
        raise PathwaysError(BadMessage(have_=f"a {type(message).__name__}", rule="what goes behind runs"))
    check_fields(message, client, f"client {client}")
    return message
