"""The messages between clients, a controller and the hosts of its islands."""

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
from pathways.runtime.wire.message import *  # noqa: F403
from pathways.runtime.wire.message import Message


class LoadPlan(Message, frozen=True):
    """Load a plan (`blob`: the bytes of plan.bin), of which a host executes what is on its island.

    `functions`: the functions of the client that computations call back.
    """

    request: Int
    plan: Id
    path: ShortText
    sequential: bool
    functions: Functions = {}  # msgspec makes a new one for each message
    blob: bytes = b""


class UnloadPlan(Message, frozen=True):
    """No run of this plan will come any more."""

    plan: Id


class Connect(Message, frozen=True):
    """Where the data of other hosts comes from: their invitations. The answer comes when both ends are ready.

    An empty one asks for what this host gives the other: the answer's value is JSON, by host.
    """

    request: Int
    invitations: dict[str, str]


class PutArray(Message, frozen=True):
    """An argument of a plan, by the index of its input: `blob` is the whole array, in its stored form."""

    array: Id
    plan: Id
    input: PositionOrNone
    blob: bytes


class PutPoison(Message, frozen=True):
    """An argument that will never be there, and why."""

    array: Id
    cause: CauseText


class RunPlan(Message, frozen=True):
    """Run a plan on the arguments of this host's inputs. The results of the whole plan are numbered from `results`.

    `transfers` is the first of the numbers under which values go between islands. `wanted`: what is looked for in the
    results of its steps (host/observe/numbers.py).
    """

    plan: Id
    run: Id
    transfers: FirstTransfer
    results: FirstResult
    arguments: Arguments
    wanted: Flags = 0


class RefuseRun(Message, frozen=True):
    """The controller to a host: a run of a plan will not come, for this cause (a diagnostic): so are its results."""

    plan: Int
    results: Int
    cause: str


class Done(Message, frozen=True):
    """All of a run is done on this host, after so many nanoseconds. `is_told`: the host told the client, too."""

    run: Int
    nanoseconds: Int
    is_told: bool = False


class Failed(Message, frozen=True):
    """As Done, of a run with bad results: diagnostics by the index of each.

    `found`: the diagnostic of what was looked for in its steps, and found first at `step`.
    """

    run: Int
    nanoseconds: Int
    causes: dict[str, str]
    found: str = ""
    step: Int = 0
    is_told: bool = False


class CopyArray(Message, frozen=True):
    """Make a copy of an array, which a later run may overwrite."""

    source: Id
    target: Id


class FreeArrays(Message, frozen=True):
    """No run will name these arrays again."""

    arrays: OwnIds


class FetchArray(Message, frozen=True):
    """Send the values of an array; of one shard, by position, or of the whole (-1)."""

    request: Int
    array: Id
    shard: PositionOrNone


class WriteArray(Message, frozen=True):
    """Write an array into a folder of this user's, shard by shard; answered when it is on the disk.

    `file` says how it lies there (JSON; dialect/array_files.py).
    """

    request: Int
    array: Id
    folder: Folder
    file: ShortText


class ReadArray(Message, frozen=True):
    """An argument of a plan, as of PutArray, whose values are in such a folder; answered when it is on the devices."""

    request: Int
    array: Id
    plan: Id
    input: PositionOrNone
    folder: Folder
    file: ShortText


class Mend(Message, frozen=True):
    """End what is on its way to and from an island, for this cause (a diagnostic), and connect with it anew.

    `anew`: at the so manieth time that its controller says so of any two islands; both ends go by it.
    """

    island: str
    cause: str
    anew: Int


class Missing(Message, frozen=True):
    """A host to its controller: for so many seconds a run has waited for values of an island, or more than one wait."""

    run: Int
    island: str
    seconds: str


class Inject(Message, frozen=True):
    """Bring a fault (JSON: its fields) to a client's runs; without one, end the last. The answer says how often that
    happened."""

    request: Int
    client: ClientNumber
    fault: ShortText


class CountCosts(Message, frozen=True):
    """Ask XLA what a run of a plan costs here: the answer's value is JSON (host/load/costs.py)."""

    request: Int
    plan: Id


class Record(Message, frozen=True):
    """Record a client's runs from now on, at most so many launches; 0: stop. The answer's blob is what was recorded
    until then."""

    request: Int
    client: ClientNumber
    most: Count


class TellTime(Message, frozen=True):
    """Say what time it is, at once: the answer's value is in nanoseconds of a clock of the host."""

    request: Int


class Hangs(Message, frozen=True):
    """A host to its controller: something hangs there for good, what is said of it, and how many faults happened."""

    cause: str
    faults: Int


class CallRoll(Message, frozen=True):
    """Another host of the island makes no progress: the answer's value is JSON, for how many seconds nothing computes
    on this one, and what it has launched (lines)."""

    request: Int


class Beat(Message, frozen=True):
    """A host to its controller, twice a second: it is there, has enqueued so many runs, and has so many arrays.

    `open_ports`: the number of open ports of JAX's transfer server (between/transfer_server.py).
    """

    runs: Int
    arrays: Int
    open_ports: Int = 0


class Fence(Message, frozen=True):
    """The host of an island is gone: nothing that it was to send will come. `cause`: a diagnostic.

    `leaves`: no other takes its place.
    """

    island: str
    cause: str
    leaves: bool = False


class Decided(Message, frozen=True):
    """What a branch of a run goes by, under a name: a host to its controller, and that to all hosts that have a part.

    `branch` is its number in the plan (dialect/plan/part.py), `loop` the name of this run of it.
    """

    run: Int
    branch: Int
    loop: Int
    name: Int
    value: Int


class Undecided(Message, frozen=True):
    """As Decided, of what will never be known: a diagnostic says why. Names below 0: all that is not decided yet."""

    run: Int
    branch: Int
    loop: Int
    name: Int
    cause: str


class Reached(Message, frozen=True):
    """A host to its controller: all of a loop's turns so far are behind it, and it waits for the next decision."""

    run: Int
    branch: Int
    loop: Int
