"""Defines the messages to and from hosts, and exports all other messages. All code that sends or handles messages
imports them from here.
"""

from pathways.runtime.wire.client_messages import *  # noqa: F403  # so that each message is a name of this module
from pathways.runtime.wire.fields import (
    Arguments,
    CauseText,
    ClientNumber,
    Count,
    FirstResult,
    FirstTransfer,
    Flags,
    Folder,
    Functions,
    Id,
    Int,
    OwnIds,
    PositionOrNone,
    ShortText,
)
from pathways.runtime.wire.frames import Bytes
from pathways.runtime.wire.message import *  # noqa: F403
from pathways.runtime.wire.message import Message


class LoadPlan(Message, frozen=True):
    """Load a plan (`blob`: the bytes of plan.bin). The host executes the partition of its island.

    `functions` are the client's functions that computations call as host callbacks.
    """

    request: Int
    plan: Id
    path: ShortText
    sequential: bool
    functions: Functions = {}  # msgspec makes a new one for each message
    blob: bytes = b""


class UnloadPlan(Message, frozen=True):
    """No more runs of this plan will be sent."""

    plan: Id


class Connect(Message, frozen=True):
    """Connect to the hosts whose invitations are given. Answered when both ends are ready.

    An empty invitation requests this host's own invitation for that host. The answer's value is JSON, by host.
    """

    request: Int
    invitations: dict[str, str]


class PutArray(Message, frozen=True):
    """An argument of a plan, by input index. `blob` is the whole array in its stored form."""

    array: Id
    plan: Id
    input: PositionOrNone
    blob: Bytes


class PutPoison(Message, frozen=True):
    """An argument that will never be available, and the cause."""

    array: Id
    cause: CauseText


class RunPlan(Message, frozen=True):
    """Run a plan on the arguments of this host's inputs. Results of the whole plan are numbered from `results`.

    `transfers` is the first number for values sent between islands. `wanted` selects the checks on step results
    (host/observe/numbers.py). `label` is the hash of the client's label inside its process.
    """

    plan: Id
    run: Id
    transfers: FirstTransfer
    results: FirstResult
    arguments: Arguments
    wanted: Flags = 0
    label: Count = 0


class RefuseRun(Message, frozen=True):
    """Controller to host: a run of a plan will not be sent, for this cause (a diagnostic). Its results fail with it."""

    plan: Int
    results: Int
    cause: str


class Done(Message, frozen=True):
    """A run completed on this host; it took `nanoseconds`. If `is_reported`, the host has also notified the client."""

    run: Int
    nanoseconds: Int
    is_reported: bool = False


class Failed(Message, frozen=True):
    """Like Done, for a run with failed results: diagnostics by result index.

    `found` is the diagnostic of the first check that failed, at step `step`.
    """

    run: Int
    nanoseconds: Int
    causes: dict[str, str]
    found: str = ""
    step: Int = 0
    is_reported: bool = False


class CopyArray(Message, frozen=True):
    """Copy an array, or its shard at a position; a later run may overwrite the copy."""

    source: Id
    target: Id
    shard: PositionOrNone = -1


class FreeArrays(Message, frozen=True):
    """No later run names these arrays."""

    arrays: OwnIds


class FetchArray(Message, frozen=True):
    """Send the values of one shard of an array, by position, or of the whole array (-1)."""

    request: Int
    array: Id
    shard: PositionOrNone


class WriteArray(Message, frozen=True):
    """Write an array into a folder of this user, shard by shard. Answered when it is on disk.

    `file` describes the layout of the file as JSON (dialect/array_files.py).
    """

    request: Int
    array: Id
    folder: Folder
    file: ShortText


class ReadArray(Message, frozen=True):
    """Like PutArray, for values stored in such a folder. Answered when the array is on the devices."""

    request: Int
    array: Id
    plan: Id
    input: PositionOrNone
    folder: Folder
    file: ShortText


class Mend(Message, frozen=True):
    """Abort the transfers to and from an island, for this cause (a diagnostic), and reconnect with it.

    `anew` counts the reconnections that the controller has ordered between any islands. Both ends must use the same
    value.
    """

    island: str
    cause: str
    anew: Int


class Missing(Message, frozen=True):
    """Host to controller: a run has waited this long for values of an island, possibly in more than one wait."""

    run: Int
    island: str
    seconds: str


class Inject(Message, frozen=True):
    """Inject a fault (its fields as JSON) into a client's runs; an empty text ends the last fault.

    The answer is the number of times that the last fault occurred.
    """

    request: Int
    client: ClientNumber
    fault: ShortText


class CountCosts(Message, frozen=True):
    """Compute what a run of a plan costs here, according to XLA. The answer's value is JSON (host/load/costs.py)."""

    request: Int
    plan: Id


class Record(Message, frozen=True):
    """Record a client's runs from now on, at most `limit` launches; 0 stops.

    The answer's blob is the recording so far.
    """

    request: Int
    client: ClientNumber
    limit: Count


class ReportTime(Message, frozen=True):
    """Send the current time at once. The answer's value is in nanoseconds of a clock of the host."""

    request: Int


class Unusable(Message, frozen=True):
    """Host to controller: the host's devices hang, or one of them is lost. `cause` is a diagnostic."""

    cause: str


class CallRoll(Message, frozen=True):
    """Controller to host: report progress, because another host of the island or of the run makes none.

    The answer's value is JSON: how many seconds this host has computed nothing, and its launched calls as lines.
    """

    request: Int


class Beat(Message, frozen=True):
    """Host to controller, twice a second: heartbeat with the counts of enqueued runs and of arrays.

    `open_ports`: the number of open ports of JAX's transfer server (between/transfer_server.py).
    """

    runs: Int
    arrays: Int
    open_ports: Int = 0


class Fence(Message, frozen=True):
    """The host of an island is lost: none of its pending values will arrive. `cause` is a diagnostic.

    If `is_removed`, no host replaces it.
    """

    island: str
    cause: str
    is_removed: bool = False


class Decided(Message, frozen=True):
    """The decision of a branch of a run, under a name. The deciding host sends it through the controller to all hosts.

    `branch` is its number in the plan (dialect/plan/part.py). `loop` names this execution of the branch.
    """

    run: Int
    branch: Int
    loop: Int
    name: Int
    value: Int


class Undecided(Message, frozen=True):
    """Like Decided, for a value that will never be known. Names below 0 stand for all open decisions."""

    run: Int
    branch: Int
    loop: Int
    name: Int
    cause: str


class Reached(Message, frozen=True):
    """Host to controller: all iterations of a loop so far are complete, and the host waits for the next decision."""

    run: Int
    branch: Int
    loop: Int
