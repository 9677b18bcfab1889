"""Errors: a code, the user's line, have / need / try. The catalogs of errors are `*/errors.py`."""

import contextlib
import linecache
import os
import sys
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

from pathways.dialect.printable import lines_of, printable


class Exit(IntEnum):
    """Exit codes of `pwc`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    HANG = 4
    CAPACITY = 5
    VERSION = 6


@dataclass(frozen=True)
class Where:
    """A place in the user's source. IR and plans name files as sources.py says; `here` is the file on this machine."""

    file: str
    line: int
    function: str = ""
    here: str = field(default="", compare=False, repr=False)
    """Not stored; empty where it is `file` itself, or not known."""

    def __str__(self) -> str:
        inside = f"  in {self.function}" if self.function else ""
        return f"{self.at}{inside}"

    @property
    def at(self) -> str:
        """Shows the file on this machine, as far as it is known, and the line."""
        return f"{self.here or self.file}:{self.line}"

    def source(self) -> str:
        """The line; empty where it cannot be read."""
        file = self.here or self.file
        return linecache.getline(file, self.line).rstrip() if _is_source(file) else ""

    def as_json(self) -> dict[str, Any]:
        return {"file": self.here or self.file, "line": self.line, "function": self.function}


LARGEST_SOURCE = 1 << 24
"""The most bytes of a file whose lines are shown."""


def _is_source(file: str) -> bool:
    """Returns whether a file may be read for a line of it: a plan may name a device, or a pipe, that never ends."""
    if "\0" in file:
        return False
    if file in linecache.cache or not os.path.exists(file):  # a cell of a notebook, or below sys.path
        return True
    try:
        return os.path.isfile(file) and 0 < os.path.getsize(file) <= LARGEST_SOURCE
    except OSError:  # it was removed meanwhile
        return False


class JaxFailure(RuntimeError):
    """Stands for `jax.errors.JaxRuntimeError`, which a process that computes nothing need not import."""


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """Base of all user-facing errors: subclasses declare a code and templates over their own fields."""

    code: ClassVar[str] = "PWC0000"
    severity: ClassVar[str] = "error"
    exit: ClassVar[Exit] = Exit.REFUSED
    title: ClassVar[str] = ""
    have: ClassVar[str] = ""
    need: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    also: ClassVar[tuple[type[Exception], ...]] = ()
    """The exceptions that `jax.jit` raises in this case: a `PathwaysError` is caught as one of these, too."""

    where: Where | None = None

    def text(self, template: str) -> str:
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return template.format(**fields)

    @property
    def brief(self) -> str:
        """What went wrong, in one line: for notes, which have no room for the rest."""
        return f"{self.text(self.title)}: {self.text(self.have)}"

    def render(self, severity: str = "") -> str:
        """Writes the message as a terminal shows it, perhaps as another kind of message, a warning say."""
        lines = [f"{severity or self.severity}[{self.code}]: {printable(self.text(self.title))}"]
        if self.where is not None:
            lines.append(f"  --> {printable(str(self.where))}")
            if source := self.where.source():
                lines.append(f"      {self.where.line} | {lines_of(source.strip())}")
        for label, template in (("have", self.have), ("need", self.need), ("try", self.hint)):
            if template:
                body = lines_of(self.text(template)).replace("\n", "\n         ")
                lines.append(f"  {label + ':':6} {body}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "title": self.text(self.title),
            "have": self.text(self.have),
            "need": self.text(self.need),
            "try": self.text(self.hint),
            "where": None if self.where is None else self.where.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Explained(Diagnostic):
    """Base of the errors of which whatever finds them says in its own words what there is, is needed, and to try."""

    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{advice}"
    have_: str
    rule: str
    advice: str


MOST_SHOWN = 20
"""The most violations of one kind that are shown."""


class PathwaysError(Exception):
    """Every error that a user can cause or meet: one diagnostic, or all violations of one kind.

    `diagnostic` is the first of `diagnostics`; each carries a code and the parts of its message. `also` lists classes
    of which the error is an instance, too: what `jax.jit` raises in its place, or what a user's own code has raised.
    """

    def __new__(cls, diagnostic: Diagnostic, *more: Diagnostic, also: tuple[type[Exception], ...] = ()) -> Self:
        wanted = tuple(dict.fromkeys(map(_known, (*also, *diagnostic.also))))
        chosen: Any = _class_for(wanted) if cls is PathwaysError and wanted else cls
        return super(PathwaysError, chosen).__new__(chosen)

    def __init__(self, diagnostic: Diagnostic, *more: Diagnostic, also: tuple[type[Exception], ...] = ()) -> None:
        self.diagnostics = (diagnostic, *more)
        self.diagnostic = diagnostic
        self._also = also
        # Not `super()`: a constructor of a class in `also` takes other arguments.
        Exception.__init__(self, "\n".join(d.render() for d in self._shown))

    def __reduce__(self) -> tuple[Any, ...]:
        found = tuple(cls for cls in self._also if _is_found_by_name(cls))
        return partial(PathwaysError, also=found), self.diagnostics

    # A class in `also` may have methods of its own, which need what its constructor would have set.
    __str__ = Exception.__str__
    __repr__ = Exception.__repr__
    __hash__ = Exception.__hash__
    __eq__ = Exception.__eq__

    @property
    def _shown(self) -> tuple[Diagnostic, ...]:
        """Joins the messages: each once, and no more than a screen can hold."""
        return tuple(dict.fromkeys(self.diagnostics))[:MOST_SHOWN]

    @property
    def code(self) -> str:
        return self.diagnostic.code


_NEVER_JOINED = (StopIteration, StopAsyncIteration, AttributeError)
"""Python takes these for something else: the end of a loop, or an attribute that an object does not have."""


def _is_found_by_name(cls: type) -> bool:
    """Whether pickle finds a class again: one that a function defines is not."""
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls


@lru_cache
def _class_for(also: tuple[type[Exception], ...]) -> type[PathwaysError]:
    """Makes a subclass of `PathwaysError` and of other exceptions; leaves out those that cannot be joined with it."""
    bases: list[type] = []
    for cls in also:
        if issubclass(cls, _NEVER_JOINED):
            continue
        # A class comes before those that it is derived from, or Python finds no order of the bases.
        joined = sorted([*bases, cls], key=lambda c: -len(c.__mro__))
        with contextlib.suppress(Exception):  # a user's class may do anything when one is derived from it
            made: Any = type("", (PathwaysError, *joined), {})
            probe = super(PathwaysError, made).__new__(made)
            probe.diagnostics, probe.diagnostic, probe._also = (), None, ()
            bases = joined
    return type("PathwaysError", (PathwaysError, *bases), {"__module__": PathwaysError.__module__})


def _known(cls: type[Exception]) -> type[Exception]:
    """Returns the class of JAX that `JaxFailure` stands for, where JAX is imported."""
    return getattr(sys.modules.get("jax.errors"), "JaxRuntimeError", RuntimeError) if cls is JaxFailure else cls


class InternalError(Exception):
    """A bug inside this package: never the user's fault."""

    def __init__(self, what: str) -> None:
        super().__init__(f"internal error: {what}. This should never happen; please file a bug.")
