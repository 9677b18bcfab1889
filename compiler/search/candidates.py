"""Enumerates the splits of a loss that fit a topology. A split states stages x data x model devices, microbatches and a
schedule. `pw.search` then predicts the time of each. Pure functions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pathways.compiler.schedule import PROGRAM, ZERO_BUBBLE
from pathways.dialect.choice import SplitChoice
from pathways.dialect.topology import Island, Topology

GPIPE, INTERLEAVED = "gpipe", "interleaved"
MAX_STAGES = 128
"""Maximum number of stages to try."""


@dataclass(frozen=True)
class Space:
    """The limits of the search. `places` is the maximum number of stages of the loss.

    `splits_parameters` says whether the parameters can be split.
    """

    batch: int
    places: int
    schedules: tuple[str, ...] = (GPIPE, "1f1b", INTERLEAVED, ZERO_BUBBLE)
    chunks: tuple[int, ...] = (1, 2, 4)
    max_microbatches: int = 0
    """0: as many as the batch has rows, but at most 16 a stage."""
    max_model: int = 8
    splits_parameters: bool = True


def candidates(topology: Topology, space: Space) -> Iterator[SplitChoice]:
    """Yields all possible splits that need no more devices than there are. A slice lies on one island."""
    islands = sorted(topology.islands, key=lambda i: -(i.flops or 0.0))
    largest = max(i.size for i in islands)
    for data in _divisors(topology.size):
        for model in _divisors(largest) if space.splits_parameters else [1]:
            if model > space.max_model or data * model > topology.size:
                continue
            rooms = [i.size // (data * model) for i in islands]
            spans = data * model > largest
            for stages in [1] if spans else _powers(min(sum(rooms), space.places)):
                where = () if spans else _places(islands, rooms, stages)
                yield from _orders(SplitChoice(stages, data=data, model=model, islands=where), space)


def _orders(split: SplitChoice, space: Space) -> Iterator[SplitChoice]:
    """Yields a split with each number of microbatches, schedule and number of stages a slice."""
    for count in _divisors(space.batch):
        rows = space.batch // count
        limit = space.max_microbatches or 16 * split.stages
        if rows % split.data or count > limit:
            continue
        if split.stages == 1:
            schedule = PROGRAM if count == 1 else "1f1b"
            yield _with(split, count, schedule, 1)
            continue
        for schedule in space.schedules:
            if count == 1 and schedule != space.schedules[0]:
                continue  # one microbatch has one order
            for chunks in space.chunks if schedule == INTERLEAVED else (1,):
                whole = chunks == 1 if schedule != INTERLEAVED else chunks > 1 and count % split.stages == 0
                if whole and split.stages * chunks <= space.places:
                    yield _with(split, count, PROGRAM if count == 1 else schedule, chunks)


def _with(split: SplitChoice, count: int, schedule: str, chunks: int) -> SplitChoice:
    return SplitChoice(split.stages, chunks, split.data, split.model, count, schedule=schedule, islands=split.islands)


def _places(islands: Sequence[Island], rooms: Sequence[int], stages: int) -> tuple[str, ...]:
    """Returns the island of each slice: the fastest islands first, neighbors together, as few islands as possible."""
    found: list[str] = []
    for island, room in zip(islands, rooms, strict=True):
        found += [island.name] * min(room, stages - len(found))
    return tuple(found)


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def _powers(limit: int) -> list[int]:
    """Returns the powers of two up to the maximum, and the maximum."""
    found = [2**k for k in range(limit.bit_length()) if 2**k <= limit]
    return found if limit < 1 or found[-1] == limit else [*found, limit]
