"""Checks how deep MLIR text is nested before MLIR parses it, because MLIR's parser recurses, and deep text kills the
process. `mlir.py` calls it for every text from outside.

It makes one pass over the tokens of the text, knows strings, comments and aliases, and does not recurse. An alias
counts with its expansion at each use: a chain of aliases may expand to far more than the text. Most texts need no pass:
NumPy counts their brackets, and finds that they cannot be too deep.
"""

import math
import re
from dataclasses import dataclass, field

import numpy as np

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.errors import TooDeep

DEEPEST_TEXT = 256
"""The deepest nesting that is accepted. Dumps reach a tenth of it; MLIR reads over 1,000 regions on an 8 MiB stack."""
LARGEST_TEXT = 10_000
"""The most tokens that one alias may expand to."""
MAX_GROWTH = 16
"""The most tokens that all uses of aliases together may expand to, for each character of the text."""

MLIR_TOKEN = re.compile(
    r'(?P<words>[^"/()\[\]{}<>#!+*-]*+)'
    r'(?:(?P<open>(?:"(?:[^"\\\n]|\\.)*"\s*)?[(\[{<])|"(?:[^"\\\n]|\\.)*"?|//[^\n]*|(?P<arrow>->)'
    r"|(?P<close>[)\]}>])|(?P<alias>[#!][\w$.-]+)(?P<defines>\s*=(?!=))?|(?P<operator>[-+*])|/|[#!])"
)
BRACKET_PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}
_OP = re.compile(r"%|\bmodule\b|\b[A-Za-z_]\w*\.\w")
"""Matches the text before the first bracket of an op, but not of an alias definition."""
_AFFINE = re.compile(r"\baffine_(?:map|set)\s*$")
_DIVISION = re.compile(r"\b(?:floordiv|ceildiv|mod)\b")
_DEFINES = re.compile(r"[#!][\w$.-]+\s*=(?!=)")
"""Matches the name that an alias definition begins with."""
_DEFINITION = re.compile(rf"^{_DEFINES.pattern}.*$(?=\n(?:{_DEFINES.pattern}|module\b|\s*\Z)|\Z)", re.MULTILINE)
"""Matches a line that defines an alias, if the definition ends with the line."""


@dataclass(slots=True)
class TextScan:
    """The state of the pass over the text."""

    open: list[str] = field(default_factory=list[str])
    known: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Depth and size of the expansion of each alias."""
    defining: str = ""
    depth: int = 0
    size: int = 0
    total: int = 0
    affine: int = -1
    """The depth at which an affine map was opened, whose sums nest without brackets; -1 outside of affine maps."""
    operators: int = 0

    def visit(self, match: "re.Match[str]") -> int:
        """Adds a token and the words before it; returns its depth."""
        here, more = len(self.open), 1
        if self.affine >= 0:
            self.operators += len(_DIVISION.findall(match["words"])) + (match["operator"] is not None)
        match match.lastgroup:
            case "open":
                self._open(match["open"], match["words"])
                here += 1
            case "close":
                self._close(match["close"])
            case "defines" if not here:
                self.define(match["alias"])
                return 0
            case "alias" | "defines":
                deep, more = self.known.get(match["alias"], (0, 1))
                here += deep
                self.total += more
            case _:
                pass
        self.size += more
        self.depth = max(self.depth, here)
        return here + self.operators

    def define(self, alias: str) -> None:
        """Completes the definition of the previous alias, which extends to this point, and begins that of `alias`."""
        if self.defining:
            self.known[self.defining] = self.depth, self.size
        self.defining, self.depth, self.size = alias, 0, 1

    def _open(self, token: str, words: str) -> None:
        quoted = len(token) > 1
        if not self.open and (quoted or _OP.search(words)):
            self.define("")
        if _AFFINE.search(words):
            self.affine, self.operators = len(self.open), 0
        self.open.append(token[-1])

    def _close(self, bracket: str) -> None:
        if self.open and self.open[-1] == BRACKET_PAIRS[bracket]:
            self.open.pop()
        if len(self.open) <= self.affine:
            self.affine, self.operators = -1, 0


def check_nesting(source: str, name: str) -> None:
    """Raises PWC0709 for text that is nested too deep for MLIR, or whose aliases expand to far more than its length."""
    if is_flat_text(source):
        return
    scan = TextScan()
    for match in MLIR_TOKEN.finditer(source):
        depth = scan.visit(match)
        grown = (scan.defining and scan.size > LARGEST_TEXT) or scan.total > LARGEST_TEXT + MAX_GROWTH * len(source)
        if depth > DEEPEST_TEXT or grown:
            problem = "aliases that expand to far more text than the input" if grown else f"brackets {depth} deep"
            where = Where(name, source.count("\n", 0, match.start()) + 1)
            raise PathwaysError(TooDeep(name=name, problem=problem, most=DEEPEST_TEXT, where=where))


def is_flat_text(source: str) -> bool:
    """Returns whether a count of brackets proves that a text is not nested too deep.

    MLIR reads no further than the first bracket without its pair. So up to there, the depth is the number of brackets
    opened and not closed.
    """
    if '\\"' in source:
        return False
    pieces = source.split('"')
    plain = "".join(pieces[::2]).replace("->", "")
    if "//" in plain or "affine_" in plain or any("\n" in string for string in pieces[1::2]):
        return False
    definitions = _DEFINITION.findall(plain)
    if len(_DEFINES.findall(plain)) != len(definitions):
        return False
    aliases = TextScan()
    for line in definitions:
        for match in MLIR_TOKEN.finditer(line):
            aliases.visit(match)
        if aliases.open or aliases.size > LARGEST_TEXT:
            return False
    aliases.define("")
    deepest, largest = (max((known[i] for known in aliases.known.values()), default=0) for i in (0, 1))
    uses = plain.count("#") + plain.count("!")
    return uses * largest <= LARGEST_TEXT + MAX_GROWTH * len(source) and _depth(plain) + deepest <= DEEPEST_TEXT


def _depth(plain: str) -> float:
    """Returns the depth of a text without strings; infinity if a bracket closes none of its kind."""
    letters = np.frombuffer(plain.encode(), np.uint8)
    is_bracket = np.zeros(256, bool)
    is_bracket[list(b"()[]{}<>")] = True
    brackets, depth = letters[is_bracket[letters]], np.zeros(1, np.int32)
    for close, begin in BRACKET_PAIRS.items():
        of_kind = np.cumsum((brackets == ord(begin)).astype(np.int8) - (brackets == ord(close)), dtype=np.int32)
        if of_kind.min(initial=0) < 0:
            return math.inf
        depth = depth + of_kind
    return int(depth.max(initial=0))
