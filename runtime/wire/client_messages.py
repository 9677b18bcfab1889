"""The messages of clients: to a controller that several share, and to the hosts of its islands."""

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

MAX_CARRIED_BYTES = 1 << 16
"""Arguments up to this size, together, are sent with the run that takes them."""
WEIGHT = 1 << 20
"""What a weight is multiplied by in messages."""


class Welcome(Message, frozen=True):
    """The controller to a client, once: its number, what it shows to hosts (`ticket`), and what there is.

    `topology` is a spec (docs/topologies.md); `hosts` has the epoch of each island, by name, in the order of their
    numbers, the addresses of its hosts, and why none will come any more; no address: they are not there yet.
    """

    client: Int
    ticket: str
    platform: str
    topology: str
    policy: str
    hosts: dict[str, str]


class Expect(Message, frozen=True):
    """The controller to a host: a client will come, and show this ticket, and the certificate of this name, if any.

    `key`: with it the host proves to the controller what it has loaded for the client (wire/load_proofs.py).
    """

    client: Int
    ticket: str
    member: str
    key: str


class Forget(Message, frozen=True):
    """The controller to a host: a client is gone. Answered when whatever was the client's is gone, too."""

    request: Int
    client: Int


class Attach(Message, frozen=True):
    """A client to a host, first of all: whose the messages are that follow."""

    request: Int
    client: Int
    ticket: str


class Flush(Message, frozen=True):
    """A client to a host: answer when all that was sent before is in line, so that a run which comes now finds it."""

    request: Int


class HostGone(Message, frozen=True):
    """The controller to a client: the hosts of an island's epoch are gone, and why (a diagnostic)."""

    island: str
    epoch: Int
    cause: str


class HostCame(Message, frozen=True):
    """The controller to a client: the hosts of an island are there, at addresses by name; none: none will come."""

    island: str
    epoch: Int
    addresses: dict[str, str]


class ChangeIslands(Message, frozen=True):
    """A client to the controller: add the island of a topology (a TOML file), or remove one, by its name.

    `named` is whether it is to have the name that it has there; `now`: what runs there fails. The answer's value is the
    name of the island.
    """

    request: Int
    topology: ShortText
    island: Name
    named: bool
    now: bool


class IslandCame(Message, frozen=True):
    """The controller to a client: there is another island, the one of a topology (a TOML file), of this number.

    `first` is the number of its first device.
    """

    number: Int
    first: Int
    topology: str


class IslandLeaves(Message, frozen=True):
    """The controller to a client: an island is being removed (`cause`: a diagnostic); nothing is to be placed there."""

    island: str
    cause: str


class Introduce(Message, frozen=True):
    """A client to the controller: one of its plans, or of the clients inside of it (`plan` is -1), has this name.

    `branches` are those that several hosts take together; None for a plan without any branch. `digest` is the same for
    all clients that have the same plan.
    """

    number: Count
    plan: PlanOrNone
    name: Name
    branches: SharedBranches | None
    digest: Name


class Retire(Message, frozen=True):
    """A client to the controller: a client inside of it was closed, and holds nothing; its number is not used again."""

    number: Count


class Loaded(Message, frozen=True):
    """A client to the controller: the hosts of an island have loaded a plan.

    `proofs`: what each of them has answered, by rank, joined by spaces (wire/load_proofs.py).
    """

    plan: Id
    island: Count
    proofs: ShortText


class Submit(Message, frozen=True):
    """A client to the controller: run this when its turn comes. `blob` has the message to each island (`parcels`).

    `inside` is which of the clients inside of the process it is for, `weight` its weight times `WEIGHT`; `memory` has
    the bytes that it takes on devices (numbered over all islands), in pairs.
    """

    run: Id
    plan: Id
    inside: Count
    weight: Weight
    memory: MemoryPairs
    blob: bytes


class Relayed(Message, frozen=True):
    """What goes by the controller: a client's message to an island, behind its runs there, or a host's to a client.

    `rank`: which of the hosts of the island says it; what a client says goes to all of them.
    """

    island: Count
    epoch: Count
    rank: Count
    blob: bytes


class Hold(Message, frozen=True):
    """A client to the controller: it holds so many bytes more on devices, in pairs; negative: fewer.

    `run`: the run that makes the arrays, if it has not ended. Until it begins they take no memory. 0: none.
    """

    inside: Count
    memory: MemoryPairs
    run: RunOrNone = 0


class Cancel(Message, frozen=True):
    """A client to the controller: end the loops of a run, and take it out of line (`cause`: a diagnostic)."""

    run: Id
    cause: CauseText


class CallBack(Message, frozen=True):
    """A host to a client: call a function of its process (dialect/host_callbacks.py), for a computation of this name.

    `value` is JSON, the type and shape of each argument, `blob` their bytes. `alone`: no result shows an exception.
    """

    call: Int
    function: Int
    computation: str
    alone: bool
    value: str
    blob: bytes


class Calling(Message, frozen=True):
    """A client to a host, once a second: a call goes on; whether its thread has computed since this was last said."""

    call: Int
    computes: bool


class Returned(Message, frozen=True):
    """A client to a host: a call has returned (`blob`: the bytes of all results), or raised an exception (`cause`)."""

    call: Int
    cause: ShortText
    blob: bytes


class TellStacks(Message, frozen=True):
    """The controller to a host: say where each of its threads is; the answer's value is text."""

    request: Int
