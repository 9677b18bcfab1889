"""Islands that are there and do not reach each other: when two of them are to connect anew, for a run. Pure."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.control.gang_roll import hangs
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NothingComesThrough

MOST_MENDED = 256
"""Runs of which it is known that two of their islands were connected anew, of the last ones."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Finds two islands to connect anew, once for a run, whichever of their hosts tell of it, and of either way: what a
    later run has offered would end with the second time."""

    _mended: deque[tuple[int, str, str]] = field(
        default_factory=lambda: deque[tuple[int, str, str]](maxlen=MOST_MENDED)
    )
    _anew: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def found(self, message: m.Missing, target: str, idle: Sequence[float]) -> NothingComesThrough | None:
        """Says why values do not come to an island; None where they may be computed yet, or this was said before.

        `idle`: the seconds for which each host of the run computes nothing.
        """
        told = message.run, min(message.island, target), max(message.island, target)
        if not idle or not hangs(float(message.seconds), idle) or told in self._mended:
            return None
        self._mended.append(told)
        return NothingComesThrough(source=message.island, target=target, seconds=message.seconds)

    def mends(self, cause: NothingComesThrough) -> Mapping[str, m.Mend]:
        """What each of the two islands is told, by name: to end what is on its way, and to connect anew."""
        said, anew = write_diagnostic(cause), next(self._anew)
        return {cause.source: m.Mend(cause.target, said, anew), cause.target: m.Mend(cause.source, said, anew)}
