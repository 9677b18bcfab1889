"""The offset of another clock is estimated from messages that went there and back."""

import random

import pytest

from pathways.runtime.client.remote.cluster_recorder import Ping, ahead


def pings(offset: int, rng: random.Random) -> list[Ping]:
    """Makes messages whose times there and back are random."""
    found: list[Ping] = []
    now = rng.randrange(1 << 40)
    for _ in range(8):
        there, back = rng.randrange(1000, 100_000), rng.randrange(1000, 100_000)
        found.append(Ping(now, now + there + offset, now + there + back))
        now += there + back + 1000
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_an_offset_is_at_most_half_of_the_fastest_ping(seed: int) -> None:
    rng = random.Random(seed)
    offset = rng.choice([-1, 1]) * rng.randrange(1 << 20, 1 << 50)
    sent = pings(offset, rng)
    assert abs(ahead(sent) - offset) <= min(p.back - p.sent for p in sent) // 2 + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_offset_of_a_clock_to_itself_is_zero(seed: int) -> None:
    assert ahead(pings(0, random.Random(seed))) == 0


def test_slow_pings_are_ignored() -> None:
    assert ahead([Ping(0, 10**9, 10**6), Ping(10, 1010, 20), Ping(50, 10**8, 10**5)]) == 995
