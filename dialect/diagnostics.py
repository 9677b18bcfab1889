"""What an error is: a code, the user's line, have / need / try. The catalogs of errors are `*/errors.py`."""

import linecache
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, ClassVar


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
    """A place in the user's source."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        inside = f"  in {self.function}" if self.function else ""
        return f"{self.file}:{self.line}{inside}"

    def source(self) -> str:
        return linecache.getline(self.file, self.line).rstrip()


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

    where: Where | None = None

    def text(self, template: str) -> str:
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return template.format(**fields)

    def render(self) -> str:
        """The message as a terminal shows it."""
        lines = [f"{self.severity}[{self.code}]: {self.text(self.title)}"]
        if self.where is not None:
            lines.append(f"  --> {self.where}")
            if source := self.where.source():
                lines.append(f"      {self.where.line} | {source.strip()}")
        for label, template in (("have", self.have), ("need", self.need), ("try", self.hint)):
            if template:
                body = self.text(template).replace("\n", "\n         ")
                lines.append(f"  {label + ':':6} {body}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "title": self.text(self.title),
            "have": self.text(self.have),
            "need": self.text(self.need),
            "try": self.text(self.hint),
            "where": None if self.where is None else asdict(self.where),
        }


MOST_SHOWN = 20
"""How many violations of one kind are shown."""


class PathwaysError(Exception):
    """Every error that a user can cause or meet: one diagnostic, or all violations of one kind.

    `diagnostic` is the first of `diagnostics`; each carries a code and the parts of its message.
    """

    def __init__(self, diagnostic: Diagnostic, *more: Diagnostic) -> None:
        self.diagnostics = (diagnostic, *more)
        self.diagnostic = diagnostic
        super().__init__("\n".join(d.render() for d in self._shown))

    @property
    def _shown(self) -> tuple[Diagnostic, ...]:
        """Each message once, and not more than a screen can hold."""
        return tuple(dict.fromkeys(self.diagnostics))[:MOST_SHOWN]

    @property
    def code(self) -> str:
        return self.diagnostic.code


class InternalError(Exception):
    """A broken promise inside this package: never the user's fault."""

    def __init__(self, what: str) -> None:
        super().__init__(f"internal error: {what}. This should never happen; please file a bug.")
