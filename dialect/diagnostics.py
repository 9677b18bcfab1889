"""Defines the base classes of all errors that users see. An error has a code, the user's source line, and three texts:
what is there, what is needed, what to try.

Every layer raises `PathwaysError` with diagnostics of its own catalog, `*/errors.py`. This module must not import JAX:
host controllers run without it.
"""

import contextlib
import linecache
import os
import sys
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from enum import IntEnum
from functools import lru_cache, partial
from inspect import Parameter, Signature
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

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
    """A line of the user's source. `file` is the name in IR and plans (sources.py), `here` the path on this machine."""

    file: str
    line: int
    function: str = ""
    here: str = field(default="", compare=False, repr=False)
    """Never stored. Empty if it equals `file`, or if it is unknown."""

    def __str__(self) -> str:
        inside = f"  in {self.function}" if self.function else ""
        return f"{self.at}{inside}"

    @property
    def at(self) -> str:
        """The file and the line; the path on this machine if it is known."""
        return f"{self.here or self.file}:{self.line}"

    def source(self) -> str:
        """Reads the text of the line; returns an empty string if it cannot be read."""
        file = self.here or self.file
        return linecache.getline(file, self.line).rstrip() if _is_source(file) else ""

    def as_json(self) -> dict[str, Any]:
        return {"file": self.here or self.file, "line": self.line, "function": self.function}


MAX_SOURCE_BYTES = 1 << 24
"""The largest file, in bytes, whose lines are shown in messages."""


def _is_source(file: str) -> bool:
    """Checks whether a file is safe to read a line from: a plan may name a device or a pipe that never ends."""
    if "\0" in file:
        return False
    if file in linecache.cache or not os.path.exists(file):  # a notebook cell, or a path relative to sys.path
        return True
    try:
        return os.path.isfile(file) and 0 < os.path.getsize(file) <= MAX_SOURCE_BYTES
    except OSError:  # it was removed meanwhile
        return False


class JaxFailure(RuntimeError):
    """Placeholder for `jax.errors.JaxRuntimeError`, so that processes without JAX need not import it."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(init=False, repr=False, eq=False)
class Diagnostic:
    """Base class of all user-facing errors: a subclass declares a code, and templates over its own fields.

    Each subclass becomes a dataclass with the methods below. Generated methods would take a tenth of the project's
    import time. Fields may have a default, but no `default_factory`.
    """

    code: ClassVar[str] = "PWC0000"
    severity: ClassVar[str] = "error"
    exit: ClassVar[Exit] = Exit.REFUSED
    title: ClassVar[str] = ""
    have: ClassVar[str] = ""
    need: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    also: ClassVar[tuple[type[Exception], ...]] = ()
    """Exceptions that `jax.jit` raises in the same case; a `PathwaysError` can also be caught as one of them."""

    where: Where | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls.__doc__ = cls.__doc__ or cls.title  # without a text, dataclass() would format a signature, which is slow
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)

    def __init__(self, *given: Any, **named: Any) -> None:
        bound = _signature(type(self)).bind(*given, **named)
        bound.apply_defaults()
        vars(self).update(bound.arguments)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return vars(other) == vars(self) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def text(self, template: str) -> str:
        return template.format(**vars(self))

    @property
    def brief(self) -> str:
        """Title and `have` in one line, for notes that have no room for the full message."""
        return f"{self.text(self.title)}: {self.text(self.have)}"

    def render(self, severity: str = "") -> str:
        """Formats the message for a terminal; `severity` replaces the class's own, for example with "warning"."""
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


class Explained(Diagnostic, kw_only=True):
    """Base class of errors whose have, need and try texts are written by the code that raises them."""

    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{advice}"
    have_: str
    rule: str
    advice: str


@lru_cache
def _signature(cls: type[Diagnostic]) -> Signature:
    """Returns the parameters of an error class: its fields, keyword-only ones last."""
    parameters = [
        Parameter(
            f.name,
            Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if f.default is MISSING else f.default,
        )
        for f in fields(cls)
    ]
    return Signature(sorted(parameters, key=lambda parameter: parameter.kind))


MAX_SHOWN = 20
"""The most diagnostics of one error that are shown."""


class PathwaysError(Exception):
    """The exception for every error that a user can cause or meet: one diagnostic, or all violations of one rule.

    `diagnostic` is the first of `diagnostics`; each has a code and the fields of its message. `also` lists further
    base classes of the exception: those that `jax.jit` raises in this case, or those that the user's code raised.
    """

    def __new__(cls, diagnostic: Diagnostic, *more: Diagnostic, also: tuple[type[Exception], ...] = ()) -> Self:
        wanted = tuple(dict.fromkeys(map(_known, (*also, *diagnostic.also))))
        chosen: Any = _class_for(wanted) if cls is PathwaysError and wanted else cls
        return super(PathwaysError, chosen).__new__(chosen)

    def __init__(self, diagnostic: Diagnostic, *more: Diagnostic, also: tuple[type[Exception], ...] = ()) -> None:
        self.diagnostics = (diagnostic, *more)
        self.diagnostic = diagnostic
        self._also = also
        # Not `super()`: the constructor of a class in `also` may take other arguments.
        Exception.__init__(self, "\n".join(d.render() for d in self._shown))

    def __reduce__(self) -> tuple[Any, ...]:
        found = tuple(cls for cls in self._also if _is_found_by_name(cls))
        return partial(PathwaysError, also=found), self.diagnostics

    # A class in `also` may override these with methods that need attributes set by its constructor, which never ran.
    __str__ = Exception.__str__
    __repr__ = Exception.__repr__
    __hash__ = Exception.__hash__
    __eq__ = Exception.__eq__

    @property
    def _shown(self) -> tuple[Diagnostic, ...]:
        """The diagnostics to show: each once, and at most `MAX_SHOWN`, about one screen."""
        return tuple(dict.fromkeys(self.diagnostics))[:MAX_SHOWN]

    @property
    def code(self) -> str:
        return self.diagnostic.code


_NEVER_JOINED = (StopIteration, StopAsyncIteration, AttributeError)
"""Never base classes of an error: Python treats them as the end of a loop, or as a missing attribute."""


def _is_found_by_name(cls: type) -> bool:
    """Checks whether pickle can find a class by name: a class defined inside a function cannot be found."""
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls


@lru_cache
def _class_for(also: tuple[type[Exception], ...]) -> type[PathwaysError]:
    """Makes a subclass of `PathwaysError` and of the given exceptions; leaves out those that cannot be combined."""
    bases: list[type] = []
    for cls in also:
        if issubclass(cls, _NEVER_JOINED):
            continue
        # A class must come before its own base classes, or Python finds no method resolution order.
        joined = sorted([*bases, cls], key=lambda c: -len(c.__mro__))
        with contextlib.suppress(Exception):  # a user's class may run any code when it is subclassed
            made: Any = type("", (PathwaysError, *joined), {})
            probe = super(PathwaysError, made).__new__(made)
            probe.diagnostics, probe.diagnostic, probe._also = (), None, ()
            bases = joined
    return type("PathwaysError", (PathwaysError, *bases), {"__module__": PathwaysError.__module__})


def _known(cls: type[Exception]) -> type[Exception]:
    """Replaces `JaxFailure` by the class of JAX that it stands for, if JAX is imported."""
    return getattr(sys.modules.get("jax.errors"), "JaxRuntimeError", RuntimeError) if cls is JaxFailure else cls


class InternalError(Exception):
    """A bug in this package; never caused by the user."""

    def __init__(self, what: str) -> None:
        super().__init__(f"internal error: {what}. This should never happen; please file a bug.")
