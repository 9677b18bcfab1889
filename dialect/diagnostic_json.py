"""Serializes errors as JSON, so that an error keeps its code, its texts and the user's source line in another process.
The controller, hosts and clients of a cluster send errors in this form.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, cast

from pathways.dialect.diagnostics import Diagnostic, Where


class ForeignDiagnostic(Diagnostic):
    """An error whose class this process has not imported; its texts are those that the other process formatted."""

    title: ClassVar[str] = "{title_}"
    code_: str
    title_: str
    have_: str = ""
    need_: str = ""
    hint_: str = ""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        for name in ("have", "need", "hint"):  # an empty text gets no line in the message
            object.__setattr__(self, name, f"{{{name}_}}" if getattr(self, f"{name}_") else "")
        object.__setattr__(self, "code", self.code_)


def write_diagnostic(diagnostic: Diagnostic) -> str:
    """Serializes the class, the fields, and the formatted texts for a process that does not know the class."""
    own = {f.name: getattr(diagnostic, f.name) for f in fields(diagnostic) if f.name != "where"}
    where = diagnostic.where
    line = None if where is None else [where.file, where.line, where.function, where.here]
    texts = {n: diagnostic.text(getattr(diagnostic, n)) for n in ("title", "have", "need", "hint")}
    written = {"class": type(diagnostic).__name__, "code": diagnostic.code, "fields": own, "where": line, "said": texts}
    return json.dumps(written)


def read_diagnostic(text: str) -> Diagnostic:
    """Parses the output of `write_diagnostic`. Raises ValueError for other text."""
    try:
        read: dict[str, Any] = json.loads(text)
        line = read["where"]
        where = None if line is None else _where(*line)
        cls = _known().get(read["class"])
        own: Mapping[str, Any] = read["fields"]
        if cls is not None and cls.code == read["code"] and _fits(cls, own):
            return cls(**own, where=where)
        texts = {f"{n}_": str(read["said"][n]) for n in ("title", "have", "need", "hint")}
        return ForeignDiagnostic(code_=str(read["code"]), where=where, **texts)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a diagnostic: {error}") from None


def _where(file: str, line: int, function: str, here: str) -> Where:
    if not (isinstance(cast("object", line), int) and all(isinstance(cast("object", t), str) for t in (file, here))):
        raise TypeError("the line of a diagnostic")
    return Where(file, line, function, here)


def _fits(cls: type[Diagnostic], own: Mapping[str, Any]) -> bool:
    """Checks that `own` has exactly the fields of a class, each a plain value that a message can show."""
    names = {f.name for f in fields(cls)} - {"where"}
    return set(own) == names and all(isinstance(v, str | int | float | bool | None) for v in own.values())


def _known() -> dict[str, type[Diagnostic]]:
    """Returns all error classes that this process has imported, by name."""
    found: dict[str, type[Diagnostic]] = {}
    left = [Diagnostic]
    while left:
        cls = left.pop()
        found[cls.__name__] = cls
        left += cls.__subclasses__()
    return found
