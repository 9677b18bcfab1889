"""The parts of a merged call, as text: `2F3 stage model.py:12 step`, or `- add` for one of no pipeline and no line.

Names have no blanks; a file may have some, and so the function of the line comes last.
"""

import re
from dataclasses import dataclass

from pathways.dialect.diagnostics import Where

_PART = re.compile(r"(?P<action>\S+) (?P<name>\S*)(?: (?P<line>.*))?")
_LINE = re.compile(r":([0-9]{1,18})(?: ([^\s:]*))?$")


@dataclass(frozen=True)
class Part:
    """One call of a merged one: its action in a pipeline, or an empty text; its name; the user's line."""

    action: str
    name: str
    where: Where | None


def write_part(part: Part) -> str:
    line = "" if part.where is None else f" {part.where.file}:{part.where.line} {part.where.function}".rstrip()
    return f"{part.action or '-'} {re.sub(r'[^!-~]+', '_', part.name)}{line}"


def read_part(text: str) -> Part:
    """Raises ValueError for what `write_part` does not write."""
    match = _PART.fullmatch(text)
    line = None if match is None or match["line"] is None else _LINE.search(match["line"])
    if match is None or (line is None and match["line"] is not None):
        raise ValueError(f"{text!r} is no part of a call")
    where = None if line is None else Where(line.string[: line.start()], int(line[1]), line[2] or "")
    return Part("" if match["action"] == "-" else match["action"], match["name"], where)
