"""Reads and writes the text labels of calls in IR and plans. A label states the pipeline action of a call, such as
`2F3`: stage 2, forward, microbatch 3. A merged call lists the labels of the calls in it.

The compiler writes the labels; hosts, viz and `pwc inspect` read them. Actions are written as in PyTorch's pipelining.
F is forward and B backward. I is the part of a backward that computes the gradient of the stage's input. W is the part
that computes the gradients of its weights.

A part is `2F3 stage model.py:12 step`, or `- add` without a pipeline and a line. Names have no blanks. A file name may
have some, so the function of the line comes last.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from pathways.dialect.diagnostics import Where

ACTION_KINDS: Final = ("F", "B", "I", "W")
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """The work of one slice for one microbatch."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


@lru_cache(1 << 16)
def read_action(text: str) -> Action:
    """Parses an action. Raises ValueError for any other text."""
    match = _ACTION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an action like 2F3: stage, F, B, I or W, microbatch")
    return Action(int(match[1]), match[2], int(match[3]))


_PART = re.compile(r"(?P<action>\S+) (?P<name>\S*)(?: (?P<line>.*))?")
_LINE = re.compile(r":([0-9]{1,18})(?: ([^\s:]*))?$")


@dataclass(frozen=True)
class PartLabel:
    """One of the calls that were merged into one: its action in a pipeline (or ""), its name, and the user's line."""

    action: str
    name: str
    where: Where | None


def actions_of(action: str, parts: Iterable[str]) -> list[str]:
    """Lists the actions of a call as text: its own, or those of the calls merged into it, each once."""
    texts = [read_part(part).action for part in parts] or [action]
    return [text for text in dict.fromkeys(texts) if text]


def write_part(part: PartLabel) -> str:
    line = "" if part.where is None else f" {part.where.file}:{part.where.line} {part.where.function}".rstrip()
    return f"{part.action or '-'} {re.sub(r'[^!-~]+', '_', part.name)}{line}"


def read_part(text: str) -> PartLabel:
    """Parses a part. Raises ValueError for text that `write_part` does not write."""
    match = _PART.fullmatch(text)
    line = None if match is None or match["line"] is None else _LINE.search(match["line"])
    if match is None or (line is None and match["line"] is not None):
        raise ValueError(f"{text!r} is not like ACTION NAME FILE:LINE FUNCTION")
    where = None if line is None else Where(line.string[: line.start()], int(line[1]), line[2] or "")
    return PartLabel("" if match["action"] == "-" else match["action"], match["name"], where)
