"""Defines the messages that clients exchange with the controller and the hosts of a cluster. `messages.py` exports
them.

The controller and the hosts check every message of a client (`fields.py`) before they act on it.
"""

from pathways.runtime.wire.fields import (
    CauseText,
    Count,
    Id,
    Int,
    MemoryPairs,
    Name,
    PlanOrNone,
    RunOrNone,
    SharedBranches,
    ShortText,
    Weight,
)
from pathways.runtime.wire.message import Message

NO_ANSWER = "it does not answer"
"""Stands for the stacks of a host that is frozen, in the answer to `Ask` for `stacks`."""
MAX_CARRIED_BYTES = 1 << 16
"""Arguments up to this size in total are sent together with the run that takes them."""
WEIGHT = 1 << 20
"""Factor by which weights are multiplied in messages, so that they are integers."""


class Welcome(Message, frozen=True):
    """Controller to client, once: the client's number, its `ticket` for hosts, and the state of the cluster.

    `topology` is a spec (docs/topologies.md). `hosts` maps the name of each island, in the order of their numbers, to
    JSON. The JSON lists its epoch, the addresses of its hosts, why no more hosts will start, and the number of its
    first device. Without addresses, the hosts are not connected yet.
    """

    client: Int
    ticket: str
    platform: str
    topology: str
    policy: str
    hosts: dict[str, str]


class Expect(Message, frozen=True):
    """Controller to host: a client will connect, with this ticket and, if any, the certificate of this name.

    With `key` the host proves to the controller what it has loaded for the client (wire/load_proofs.py).
    """

    client: Int
    ticket: str
    member: str
    key: str


class Forget(Message, frozen=True):
    """Controller to host: a client has disconnected. Answered when everything of that client is released."""

    request: Int
    client: Int


class Attach(Message, frozen=True):
    """Client to host, first message: identifies the client that sends the messages that follow."""

    request: Int
    client: Int
    ticket: str


class Flush(Message, frozen=True):
    """Client to host: answer when all earlier messages are enqueued, so that a run submitted now finds their arrays."""

    request: Int


class HostDisconnected(Message, frozen=True):
    """Controller to client: the hosts of an island's epoch are lost. `cause` is a diagnostic."""

    island: str
    epoch: Int
    cause: str


class HostConnected(Message, frozen=True):
    """Controller to client: the hosts of an island are connected. Without addresses, no hosts will connect."""

    island: str
    epoch: Int
    addresses: dict[str, str]


class ChangeIslands(Message, frozen=True):
    """Client to controller: add the island of a topology (a TOML file), or remove an island by name.

    If `named`, the new island keeps its name in the topology. If `now`, runs on the removed island fail. The answer's
    value is the name of the island.
    """

    request: Int
    topology: ShortText
    island: Name
    named: bool
    now: bool


class IslandAdded(Message, frozen=True):
    """Controller to client: an island was added, from a topology (a TOML file), with this number.

    `first` is the number of its first device.
    """

    number: Int
    first: Int
    topology: str


class IslandDraining(Message, frozen=True):
    """Controller to client: an island is being removed (`cause`: a diagnostic), so nothing may be placed there."""

    island: str
    cause: str


class Introduce(Message, frozen=True):
    """Client to controller: the name of a plan, or of a client inside this process (`plan` is -1).

    `branches` are those that several hosts decide together, or None for a plan without branches. `digest` is the same
    for all clients that have the same plan.
    """

    number: Count
    plan: PlanOrNone
    name: Name
    branches: SharedBranches | None
    digest: Name


class Retire(Message, frozen=True):
    """Client to controller: a client inside this process was closed. It holds nothing, and its number is not reused."""

    number: Count


class Loaded(Message, frozen=True):
    """Client to controller: the hosts of an island have loaded a plan.

    `proofs` are the answers of these hosts by rank, joined by spaces (wire/load_proofs.py).
    """

    plan: Id
    island: Count
    proofs: ShortText


class Submit(Message, frozen=True):
    """Client to controller: execute a run when it is scheduled. `blob` has the messages for each island (`parcels`).

    `inside` is the number of the client inside the process. `weight` is that client's weight times `WEIGHT`. `memory`
    lists pairs of device (numbered over all islands) and bytes that the run needs there.
    """

    run: Id
    plan: Id
    inside: Count
    weight: Weight
    memory: MemoryPairs
    blob: bytes


class Relayed(Message, frozen=True):
    """A message passed on by the controller: from a client to an island, after the client's runs there, or from a host.

    `rank` is the rank of the host that sent it. A client's message goes to all hosts of the island.
    """

    island: Count
    epoch: Count
    rank: Count
    blob: bytes


class Hold(Message, frozen=True):
    """Client to controller: the client holds this many more bytes on devices, as pairs. Negative: fewer bytes.

    `run` is the run that makes the arrays, if it has not completed; 0 if there is none. The arrays take no memory until
    that run begins.
    """

    inside: Count
    memory: MemoryPairs
    run: RunOrNone = 0


class Cancel(Message, frozen=True):
    """Client to controller: end the loops of a run, and remove it from the queue. `cause` is a diagnostic."""

    run: Id
    cause: CauseText


class CallBack(Message, frozen=True):
    """Host to client: call a function of the client's process (dialect/host_callbacks.py) for this computation.

    `value` is JSON with the type and shape of each argument; `blob` has their bytes. If `has_no_results`, no
    result can carry an exception.
    """

    call: Int
    function: Int
    computation: str
    has_no_results: bool
    value: str
    blob: bytes


class Calling(Message, frozen=True):
    """Client to host, once a second: a host callback still runs.

    `computes`: whether its thread has computed since the last of these messages.
    """

    call: Int
    computes: bool


class Returned(Message, frozen=True):
    """Client to host: a callback has returned (`blob`: the bytes of all results) or raised an exception (`cause`)."""

    call: Int
    cause: ShortText
    blob: bytes


class ReportStacks(Message, frozen=True):
    """Controller to host: report the stack of every thread. The answer's value is text."""

    request: Int
