"""The messages between clients, a controller and the hosts of its islands."""

from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.runtime.wire.client_messages import Ask as Ask
from pathways.runtime.wire.client_messages import Attach as Attach
from pathways.runtime.wire.client_messages import CallBack as CallBack
from pathways.runtime.wire.client_messages import Calling as Calling
from pathways.runtime.wire.client_messages import Cancel as Cancel
from pathways.runtime.wire.client_messages import ChangeIslands as ChangeIslands
from pathways.runtime.wire.client_messages import ComeIn as ComeIn
from pathways.runtime.wire.client_messages import Expect as Expect
from pathways.runtime.wire.client_messages import Flush as Flush
from pathways.runtime.wire.client_messages import Forget as Forget
from pathways.runtime.wire.client_messages import Hold as Hold
from pathways.runtime.wire.client_messages import HostCame as HostCame
from pathways.runtime.wire.client_messages import HostGone as HostGone
from pathways.runtime.wire.client_messages import Ids as Ids
from pathways.runtime.wire.client_messages import Introduce as Introduce
from pathways.runtime.wire.client_messages import IslandCame as IslandCame
from pathways.runtime.wire.client_messages import IslandLeaves as IslandLeaves
from pathways.runtime.wire.client_messages import Loaded as Loaded
from pathways.runtime.wire.client_messages import Relayed as Relayed
from pathways.runtime.wire.client_messages import Returned as Returned
from pathways.runtime.wire.client_messages import RunRefused as RunRefused
from pathways.runtime.wire.client_messages import Submit as Submit
from pathways.runtime.wire.client_messages import TellStacks as TellStacks
from pathways.runtime.wire.client_messages import Welcome as Welcome
from pathways.runtime.wire.fields import (
    Arguments,
    CauseText,
    ClientNumber,
    Count,
    FirstResult,
    FirstTransfer,
    Flags,
    Id,
    OwnIds,
    PositionOrNone,
    ShortText,
)


@dataclass(frozen=True)
class Hello:
    """A host to its controller, once: what it is."""

    island: str
    pid: int
    versions: dict[str, str]
    address: str = ""
    """Where clients reach it, where it has several."""
    ticket: str = ""
    """What its controller has given to it alone, where that is a process of its own."""


@dataclass(frozen=True)
class LoadPlan:
    """Load a plan (`blob`: the bytes of plan.bin), of which a host executes what is on its island.

    `functions`: those of the process that asks for it which computations call back, JSON: numbers, by computation.
    """

    request: int
    plan: Id
    path: ShortText
    sequential: bool
    blob: bytes
    functions: str = ""


@dataclass(frozen=True)
class UnloadPlan:
    """No run of this plan will come any more."""

    plan: Id


@dataclass(frozen=True)
class Answer:
    """Something asked for: done, or the diagnostic why not."""

    request: int
    error: str = ""
    value: str = ""
    blob: bytes = b""


@dataclass(frozen=True)
class Connect:
    """Where the data of other hosts comes from: their invitations. The answer comes when both ends are ready.

    An empty one asks for what this host gives the other: the answer's value is JSON, by host.
    """

    request: int
    invitations: dict[str, str]


@dataclass(frozen=True)
class PutArray:
    """An argument of a plan, by the index of its input: `blob` is the whole array, in its stored form."""

    array: Id
    plan: Id
    input: PositionOrNone
    blob: bytes


@dataclass(frozen=True)
class PutPoison:
    """An argument that will never be there, and why."""

    array: Id
    cause: CauseText


@dataclass(frozen=True)
class RunPlan:
    """Run a plan on the arguments of this host's inputs. The results of the whole plan are numbered from `results`.

    `transfers` is the first of the numbers under which values go between islands. `wanted`: what is looked for in the
    results of its steps (host/observe/numbers.py).
    """

    plan: Id
    run: Id
    transfers: FirstTransfer
    results: FirstResult
    wanted: Flags = field(default=0, kw_only=True)
    arguments: Arguments


@dataclass(frozen=True)
class RefuseRun:
    """The controller to a host: a run of a plan will not come, for this cause (a diagnostic): so are its results."""

    plan: int
    results: int
    cause: str


@dataclass(frozen=True)
class Done:
    """All of a run is done on this host, after so many nanoseconds."""

    run: int
    nanoseconds: int


@dataclass(frozen=True)
class Failed:
    """As Done, of a run with bad results: diagnostics by the index of each.

    `found`: the diagnostic of what was looked for in its steps, and found first at `step`.
    """

    run: int
    nanoseconds: int
    causes: dict[str, str]
    found: str = ""
    step: int = 0


@dataclass(frozen=True)
class CopyArray:
    """Make a copy of an array, which a later run may overwrite."""

    source: Id
    target: Id


@dataclass(frozen=True)
class FreeArrays:
    """No run will name these arrays again."""

    arrays: OwnIds


@dataclass(frozen=True)
class FetchArray:
    """Send the values of an array; of one shard, by position, or of the whole (-1)."""

    request: int
    array: Id
    shard: PositionOrNone


@dataclass(frozen=True)
class WriteArray:
    """Write an array into a folder of this user's, shard by shard; answered when it is on the disk.

    `file` says how it lies there (JSON; dialect/array_files.py).
    """

    request: int
    array: Id
    folder: ShortText
    file: ShortText


@dataclass(frozen=True)
class ReadArray:
    """An argument of a plan, as of PutArray, whose values are in such a folder; answered when it is on the devices."""

    request: int
    array: Id
    plan: Id
    input: PositionOrNone
    folder: ShortText
    file: ShortText


@dataclass(frozen=True)
class Mend:
    """End what is on its way to and from an island, for this cause (a diagnostic), and connect with it anew.

    `anew`: at the so manieth time that its controller says so of any two islands; both ends go by it.
    """

    island: str
    cause: str
    anew: int


@dataclass(frozen=True)
class Missing:
    """A host to its controller: for so many seconds a run has waited for values of an island, or more than one wait."""

    run: int
    island: str
    seconds: str


@dataclass(frozen=True)
class Inject:
    """Bring a fault (JSON: its fields) to a client's runs; without one, end the last. The answer says how often that
    happened."""

    request: int
    client: ClientNumber
    fault: ShortText


@dataclass(frozen=True)
class CountCosts:
    """Ask XLA what a run of a plan costs here: the answer's value is JSON (host/load/costs.py)."""

    request: int
    plan: Id


@dataclass(frozen=True)
class Record:
    """Record a client's runs from now on, at most so many launches; 0: stop. The answer's blob is what was recorded
    until then."""

    request: int
    client: ClientNumber
    most: Count


@dataclass(frozen=True)
class TellTime:
    """Say what time it is, at once: the answer's value is in nanoseconds of a clock of the host."""

    request: int


@dataclass(frozen=True)
class Hangs:
    """A host to its controller: something hangs there for good, what is said of it, and how many faults happened."""

    cause: str
    faults: int


@dataclass(frozen=True)
class CallRoll:
    """Another host of the island makes no progress: the answer's value is JSON, for how many seconds nothing computes
    on this one, and what it has launched (lines)."""

    request: int


@dataclass(frozen=True)
class Beat:
    """A host to its controller, twice a second: it is there, has enqueued so many runs, and has so many arrays.

    `open_ports`: the number of open ports of JAX's transfer server (devices/transfer_server.py).
    """

    runs: int
    arrays: int
    open_ports: int = 0


@dataclass(frozen=True)
class Fence:
    """The host of an island is gone: nothing that it was to send will come. `cause`: a diagnostic.

    `leaves`: no other takes its place.
    """

    island: str
    cause: str
    leaves: bool = False


@dataclass(frozen=True)
class Decided:
    """What a branch of a run goes by, under a name: a host to its controller, and that to all hosts that have a part.

    `branch` is its number in the plan (dialect/plan/part.py), `loop` the name of this run of it.
    """

    run: int
    branch: int
    loop: int
    name: int
    value: int


@dataclass(frozen=True)
class Undecided:
    """As Decided, of what will never be known: a diagnostic says why. Names below 0: all that is not decided yet."""

    run: int
    branch: int
    loop: int
    name: int
    cause: str


@dataclass(frozen=True)
class Reached:
    """A host to its controller: all of a loop's turns so far are behind it, and it waits for the next decision."""

    run: int
    branch: int
    loop: int


Message: TypeAlias = (
    Hello  # the first five are what processes of different versions say to each other
    | ComeIn
    | RunRefused
    | Ask
    | Answer
    | LoadPlan
    | UnloadPlan
    | Connect
    | PutArray
    | PutPoison
    | RunPlan
    | RefuseRun
    | Done
    | Failed
    | CopyArray
    | FreeArrays
    | FetchArray
    | WriteArray
    | ReadArray
    | Missing
    | Inject
    | CountCosts
    | Record
    | TellTime
    | Hangs
    | CallRoll
    | Beat
    | Fence
    | Mend
    | Decided
    | Undecided
    | Reached
    | Welcome
    | Expect
    | Forget
    | Attach
    | Flush
    | HostGone
    | HostCame
    | Introduce
    | Loaded
    | Submit
    | Relayed
    | Hold
    | Cancel
    | TellStacks
    | ChangeIslands
    | IslandCame
    | IslandLeaves
    | CallBack
    | Calling
    | Returned
)
