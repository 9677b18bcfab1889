"""Finds the best cut of a loss into each number of pipeline stages, for `pw.search`. If the fastest cut does not fit in
memory, it looks for one that does. Results are cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pathways.compiler.frontends.jax.pipeline.by_hand import layer_starts
from pathways.compiler.frontends.jax.pipeline.costs import Demands
from pathways.compiler.frontends.jax.pipeline.divide import best_cut
from pathways.compiler.frontends.jax.pipeline.spine import Spine
from pathways.compiler.search.predict import in_flight
from pathways.compiler.search.profile import Profile
from pathways.dialect.choice import SplitChoice


@dataclass
class CutCache:
    """The cuts of one loss. Stages are balanced, which is best for all machines with equal devices."""

    _balanced: dict[object, tuple[int, ...]] = field(default_factory=dict[object, tuple[int, ...]])
    _fitting: dict[object, tuple[int, ...] | None] = field(default_factory=dict[object, tuple[int, ...] | None])

    def balanced(self, profile: Profile, stages: int) -> tuple[int, ...]:
        """Returns the cut with nearly the least time of the slowest stage, and few bytes."""
        key = stages, tuple(profile.spine.tokens)  # with another number of rows a loss may have other operations
        if key not in self._balanced:
            ones, none = (1,) * stages, (None,) * stages
            cut = best_cut(profile.spine, Demands((1.0,) * stages, (0.0,) * stages, none, ones, ones))
            assert cut is not None  # no memory limit
            self._balanced[key] = cut.places
        return self._balanced[key]

    def fitting(
        self, profile: Profile, choice: SplitChoice, limits: Sequence[float | None], states: float
    ) -> tuple[int, ...] | None:
        """Returns the best such cut that fits the memory of each slice; None if there is none."""
        flying = in_flight(choice.stages, choice.chunks, choice.microbatches, choice.schedule)
        tokens = tuple(profile.spine.tokens)
        key = choice.stages, choice.data, choice.model, choice.microbatches, flying, tokens
        if key not in self._fitting:
            stages = len(flying)
            each = tuple(None if m is None else m / choice.chunks for m in (*limits,) * choice.chunks)
            rates, links, split = (1.0,) * stages, (0.0,) * stages, (choice.data,) * stages
            cut = best_cut(profile.spine, Demands(rates, links, each, flying, split, states))
            self._fitting[key] = None if cut is None else cut.places
        return self._fitting[key]


def layers_of(spine: Spine, places: Sequence[int]) -> tuple[int, ...]:
    """Returns the number of layers of each stage if every cut is right before a layer; otherwise empty."""
    starts = layer_starts(spine)
    counts = [sum(1 for s in starts if a <= s < b) for a, b in pairwise(places)]
    if len(starts) < len(counts) or not all(p in starts for p in places[1:-1]) or not all(counts):
        return ()
    before = sum(1 for s in starts if s < places[0])
    return () if before else tuple(counts)
