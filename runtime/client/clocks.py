"""How far the clock of another process is ahead of ours, from messages that went there and back. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ping:
    """A message was sent and its answer came, at two times of our clock; between them the other's clock said `told`."""

    sent: int
    told: int
    back: int


def ahead(pings: Sequence[Ping]) -> int:
    """Returns how far the other clock is ahead, as the fastest of some pings says: it is wrong by half of its time.

    Where it may be the same clock, as on one machine, it is: every time was told between sending and answer.
    """
    if all(p.sent <= p.told <= p.back for p in pings):
        return 0
    best = min(pings, key=lambda p: p.back - p.sent)
    return best.told - (best.sent + best.back) // 2
