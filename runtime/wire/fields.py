"""Defines field types for messages that also restrict values: an id must belong to the sending client, a number has a
range, a text a maximum length. Controllers and hosts check each message of a client against them.

Messages declare their fields with these types. The receiver calls `check_fields` before it acts on a message. A client
chooses the ids of its run before any host knows them, so it could name another client's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Protocol, TypeAlias, cast, get_type_hints, runtime_checkable

from msgspec import Meta

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.printable import printable
from pathways.runtime.wire.errors import BadMessage, ForeignArray
from pathways.runtime.wire.ids import MAX_RESULTS, NONE, client_of

MAX_NAME = 1 << 10
"""Maximum length of a name in characters."""
MAX_TRANSFERS = 1 << 62
"""Transfers of values between hosts have numbers below this limit. Numbers above it are those of greetings."""
MAX_TEXT = 1 << 20
"""Maximum length of any other text in characters, except plans."""


@runtime_checkable
class Rule(Protocol):
    """A condition on the value of a field, in addition to its type."""

    def broken(self, value: Any, client: int) -> int | str | None:
        """Returns the first id of another client, or a text that describes valid values. None if the value is valid."""
        ...


@dataclass(frozen=True)
class Owned:
    """One or several ids of the client's own arrays, plans or runs. The next `following` ids must be its own, too."""

    may_be_none: bool = False
    following: int = 0

    def broken(self, value: int | Sequence[int], client: int) -> int | str | None:
        for number in (value,) if isinstance(value, int) else value:
            last = number + self.following
            if client_of(number) == client == client_of(last) or (number == NONE and self.may_be_none):
                continue
            return last if client_of(number) == client else number
        return None


@dataclass(frozen=True)
class Number:
    """An integer from `least` to `most`."""

    least: int
    most: int

    def broken(self, value: int, client: int) -> int | str | None:
        return None if self.least <= value <= self.most else f"a number from {self.least} to {self.most}"


@dataclass(frozen=True)
class ItsClient:
    """The number of the sending client."""

    def broken(self, value: int, client: int) -> int | str | None:
        return None if value == client else f"{client}, the client that sent it"


@dataclass(frozen=True)
class Text:
    """A text of at most `most` characters. If `line`, it is one line of printable characters."""

    most: int = MAX_TEXT
    line: bool = False

    def broken(self, value: str, client: int) -> int | str | None:
        if len(value) > self.most:
            return f"at most {self.most:,} characters"
        return None if value.isprintable() or not self.line else "printable characters"


@dataclass(frozen=True)
class Cause:
    """A diagnostic as JSON."""

    def broken(self, value: str, client: int) -> int | str | None:
        if len(value) > MAX_TEXT:
            return f"at most {MAX_TEXT:,} characters"
        try:
            read_diagnostic(value)
        except (ValueError, RecursionError):
            return "a diagnostic"
        return None


Int: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Integers that fit in 64 signed bits, so that any later encoding can hold them."""
Ids: TypeAlias = tuple[Int, ...]
Id: TypeAlias = Annotated[Int, Owned()]
"""An array, a plan or a run of the client that sends the message."""
OwnIds: TypeAlias = Annotated[Ids, Owned()]
Arguments: TypeAlias = Annotated[Ids, Owned(may_be_none=True)]
"""Arrays; `NONE` for an argument that no computation reads."""
FirstResult: TypeAlias = Annotated[Int, Owned(following=MAX_RESULTS - 1)]
PlanOrNone: TypeAlias = Annotated[Int, Owned(may_be_none=True)]
ClientNumber: TypeAlias = Annotated[Int, ItsClient()]
Name: TypeAlias = Annotated[str, Text(MAX_NAME, line=True)]
ShortText: TypeAlias = Annotated[str, Text()]
Index: TypeAlias = Annotated[int, Meta(gt=-(1 << 20), lt=1 << 20)]
"""A dictionary key. Larger keys could be chosen to collide, and reading such a dictionary takes minutes."""
Functions: TypeAlias = Annotated[dict[Index, Ids], Meta(max_length=1 << 20)]
"""By computation of a plan: the numbers of the client's functions that the computation calls as host callbacks."""
HostName: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
HostNames: TypeAlias = Annotated[frozenset[HostName], Meta(max_length=1 << 12)]
MemoryPairs: TypeAlias = Annotated[Ids, Meta(max_length=1 << 17)]
"""Pairs of device number and bytes on that device."""
BranchNumber: TypeAlias = Annotated[int, Meta(gt=-(1 << 20), lt=1 << 48)]
"""Branch number, with the number of its body in the upper bits. Keys in this range can collide in a dictionary, but a
plan has few branches, so collisions cost little."""
SharedBranches: TypeAlias = Annotated[dict[BranchNumber, tuple[HostName, HostNames]], Meta(max_length=1 << 12)]
"""Branches of a plan that several hosts decide together, by number: the kind and the hosts of each."""
Folder: TypeAlias = Annotated[bytes, Meta(max_length=4096)]
"""A path as encoded by `os.fsencode`: not every path is UTF-8."""
CauseText: TypeAlias = Annotated[str, Cause()]
Count: TypeAlias = Annotated[Int, Number(0, 1 << 31)]
RunOrNone: TypeAlias = Annotated[Int, Number(0, (1 << 63) - 1)]
"""Number of a run, which the controller looks up among the client's runs; 0 for none."""
PositionOrNone: TypeAlias = Annotated[Int, Number(-1, 1 << 31)]
Weight: TypeAlias = Annotated[Int, Number(0, 1 << 60)]
FirstTransfer: TypeAlias = Annotated[Int, Number(0, MAX_TRANSFERS)]
Flags: TypeAlias = Annotated[Int, Number(0, 3)]


def named(text: str) -> str:
    """Converts any text to a valid `Name`: one line, of at most `MAX_NAME` characters."""
    return printable(text)[:MAX_NAME]


@cache
def rules_of(cls: type[Any]) -> tuple[tuple[str, Rule], ...]:
    """Lists the rules of a message's fields, as pairs of field name and rule."""
    hints = get_type_hints(cls, include_extras=True)
    found = ((name, rule) for name, hint in hints.items() for rule in getattr(hint, "__metadata__", ()))
    return tuple((name, rule) for name, rule in found if isinstance(rule, Rule))


def check_fields(message: Any, client: int, who: str) -> None:
    """Raises PWC0916 for a client's message that names another client's id, PWC0911 if it breaks another rule.

    Errors call the client `who`.
    """
    what = cast("type[Any]", type(message))
    for name, rule in rules_of(what):
        broken = rule.broken(getattr(message, name), client)
        if isinstance(broken, int):
            owner = client_of(broken)
            raise PathwaysError(ForeignArray(who=who, message=what.__name__, number=broken, owner=owner, client=client))
        if broken is not None:
            raise PathwaysError(BadMessage(have_=f"{name} of a {what.__name__} from {who}", rule=broken))
