"""Implements the options `--split-input-file` and `--verify-diagnostics` of `pwc opt`, with the syntax of `mlir-opt`.
Tests of compiler passes use them: comments in the input state the errors that are expected.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pathways.cli.errors import UnmetExpectations
from pathways.dialect.diagnostics import Diagnostic, PathwaysError

_SPLIT = re.compile(r"^// -----\s*$", re.MULTILINE)
_EXPECTED = re.compile(r"//\s*expected-error(?:@(?P<at>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*?)\}\}")


def split_input(text: str) -> Iterator[str]:
    """Splits an input into parts. Each begins with empty lines, so that line numbers do not change."""
    start = 0
    for end in (*(m.start() for m in _SPLIT.finditer(text)), len(text)):
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = text.find("\n", end) + 1 or len(text)


@dataclass(frozen=True)
class _Expected:
    """An expected error: part of its message, and its line. None means any line, or a line of the user's source."""

    text: str
    line: int | None
    stated_line: int

    def matches(self, diagnostic: Diagnostic, source: str) -> bool:
        if self.text not in diagnostic.render():
            return False
        where = diagnostic.where
        here = where is not None and where.file in (source, "-")
        return self.line is None or not here or (where is not None and where.line == self.line)


def _expectations(chunk: str) -> Iterator[_Expected]:
    for number, line in enumerate(chunk.splitlines(), 1):
        for match in _EXPECTED.finditer(line):
            at = match["at"] or "+0"
            wanted = {"above": number - 1, "below": number + 1, "unknown": None}.get(at, number)
            if at[0] in "+-":
                wanted = number + int(at)
            yield _Expected(match["text"], wanted, number)


def check_expected(source: str, results: Iterable[tuple[str, Sequence[Diagnostic]]]) -> None:
    """Raises PWC0808 for every expected error that was not raised, and for every unexpected error."""
    unmet: list[Diagnostic] = []
    for chunk, diagnostics in results:
        left = list(diagnostics)
        for expected in _expectations(chunk):
            met = next((d for d in left if expected.matches(d, source)), None)
            if met is not None:
                left.remove(met)
                continue
            what = f"{source}:{expected.stated_line}: an expected error was not raised"
            have = "; ".join(d.text(d.title) for d in left) or "no error"
            unmet.append(UnmetExpectations(what=what, have_=have, rule=expected.text))
        for diagnostic in left:
            what = f"{source}: an unexpected error was raised"
            rule = "an // expected-error comment for every error"
            unmet.append(UnmetExpectations(what=what, have_=diagnostic.render(), rule=rule))
    if unmet:
        raise PathwaysError(*unmet)
