"""The messages of clients: to a controller that several share, and to the hosts of its islands."""

from dataclasses import dataclass

from pathways.runtime.wire.fields import (
    CauseText,
    Count,
    Id,
    Name,
    PlanOrNone,
    ShortText,
    Weight,
)
from pathways.runtime.wire.fields import Ids as Ids

WEIGHT = 1 << 20
"""What a weight is multiplied by in messages."""


@dataclass(frozen=True)
class ComeIn:
    """A client to the controller, once: who it is."""

    name: Name
    pid: Count
    versions: dict[str, str]


@dataclass(frozen=True)
class Welcome:
    """The controller to a client, once: its number, what it shows to hosts (`ticket`), and what there is.

    `topology` is a spec (docs/topologies.md); `hosts` has the epoch of each island, by name, in the order of their
    numbers, the addresses of its hosts, and why none will come any more; no address: they are not there yet.
    """

    client: int
    ticket: str
    platform: str
    topology: str
    policy: str
    hosts: dict[str, str]


@dataclass(frozen=True)
class Expect:
    """The controller to a host: a client will come, and show this ticket, and the certificate of this name, if any.

    `key`: with it the host proves to the controller what it has loaded for the client (wire/load_proofs.py).
    """

    client: int
    ticket: str
    member: str
    key: str


@dataclass(frozen=True)
class Forget:
    """The controller to a host: a client is gone. Answered when whatever was the client's is gone, too."""

    request: int
    client: int


@dataclass(frozen=True)
class Attach:
    """A client to a host, first of all: whose the messages are that follow."""

    request: int
    client: int
    ticket: str


@dataclass(frozen=True)
class Flush:
    """A client to a host: answer when all that was sent before is in line, so that a run which comes now finds it."""

    request: int


@dataclass(frozen=True)
class HostGone:
    """The controller to a client: the hosts of an island's epoch are gone, and why (a diagnostic)."""

    island: str
    epoch: int
    cause: str


@dataclass(frozen=True)
class HostCame:
    """The controller to a client: the hosts of an island are there, at addresses by name; none: none will come."""

    island: str
    epoch: int
    addresses: dict[str, str]


@dataclass(frozen=True)
class ChangeIslands:
    """A client to the controller: add the island of a topology (a TOML file), or remove one, by its name.

    `named` is whether it is to have the name that it has there; `now`: what runs there fails. The answer's value is the
    name of the island.
    """

    request: int
    topology: ShortText
    island: Name
    named: bool
    now: bool


@dataclass(frozen=True)
class IslandCame:
    """The controller to a client: there is another island, the one of a topology (a TOML file), of this number.

    `first` is the number of its first device.
    """

    number: int
    first: int
    topology: str


@dataclass(frozen=True)
class IslandLeaves:
    """The controller to a client: an island is being removed (`cause`: a diagnostic); nothing is to be placed there."""

    island: str
    cause: str


@dataclass(frozen=True)
class Introduce:
    """A client to the controller: one of its plans, or of the clients inside of it (`plan` is -1), has this name.

    `branches` are those of a plan that several hosts have a part of: JSON, by number, of kinds and hosts; nothing where
    it has no branches at all. `digest` is the same for all clients that have the same plan.
    """

    number: Count
    plan: PlanOrNone
    name: Name
    branches: ShortText
    digest: Name


@dataclass(frozen=True)
class Loaded:
    """A client to the controller: the hosts of an island have loaded a plan.

    `proofs`: what each of them has answered, by rank, joined by spaces (wire/load_proofs.py).
    """

    plan: Id
    island: Count
    proofs: ShortText


@dataclass(frozen=True)
class Submit:
    """A client to the controller: run this when its turn comes. `blob` has the message to each island (`parcels`).

    `inside` is which of the clients inside of the process it is for, `weight` its weight times `WEIGHT`; `memory` has
    the bytes that it takes on devices (numbered over all islands), in pairs.
    """

    run: Id
    plan: Id
    inside: Count
    weight: Weight
    memory: Ids
    blob: bytes


@dataclass(frozen=True)
class Relayed:
    """What goes by the controller: a client's message to an island, behind its runs there, or a host's to a client.

    `rank`: which of the hosts of the island says it; what a client says goes to all of them.
    """

    island: Count
    epoch: Count
    rank: Count
    blob: bytes


@dataclass(frozen=True)
class Hold:
    """A client to the controller: it holds so many bytes more on devices, in pairs; negative: fewer."""

    inside: Count
    memory: Ids


@dataclass(frozen=True)
class Cancel:
    """A client to the controller: end the loops of a run, and take it out of line (`cause`: a diagnostic)."""

    run: Id
    cause: CauseText


@dataclass(frozen=True)
class RunRefused:
    """The controller to a client: a run has not begun, and will not (`cause`: a diagnostic)."""

    run: int
    cause: str


@dataclass(frozen=True)
class Ask:
    """A client to the controller: `status`, `stacks` or `stop`; the answer's value is JSON."""

    request: int
    what: Name


@dataclass(frozen=True)
class CallBack:
    """A host to a client: call a function of its process (dialect/host_callbacks.py), for a computation of this name.

    `value` is JSON, the type and shape of each argument, `blob` their bytes. `alone`: no result shows an exception.
    """

    call: int
    function: int
    computation: str
    alone: bool
    value: str
    blob: bytes


@dataclass(frozen=True)
class Calling:
    """A client to a host, once a second: a call goes on; whether its thread has computed since this was last said."""

    call: int
    computes: bool


@dataclass(frozen=True)
class Returned:
    """A client to a host: a call has returned (`blob`: the bytes of all results), or raised an exception (`cause`)."""

    call: int
    cause: ShortText
    blob: bytes


@dataclass(frozen=True)
class TellStacks:
    """The controller to a host: say where each of its threads is; the answer's value is text."""

    request: int
