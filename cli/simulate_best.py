"""Ranks the variants of a sweep without simulating all of them: `pwc simulate --sweep --top`."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.cli.simulate_variants import Compared, Outcome, Variant, outcome_of
from pathways.compiler.simulate.estimate import FIRST, Estimated, SweepLine, next_cell
from pathways.compiler.simulate.figures import Simulated
from pathways.dialect.activities import Activity
from pathways.dialect.plan.nouns import Plan


@dataclass
class BestVariants:
    """Simulates only what is needed to rank the variants: some numbers of microbatches, then the `top` fastest."""

    compiled: Callable[[Variant], Plan]
    simulated: Callable[[Plan], Simulated]
    top: int
    worst: float = 0.0
    """The largest relative error of the estimates, among those that were simulated after they had been estimated."""
    _lines: list[SweepLine] = field(default_factory=list[SweepLine])

    def of(self, base: Variant, space: Compared) -> dict[str, Outcome]:
        """Returns what is known of each variant, by its name, in the order of `space`."""
        variants = space.variants(base)
        rows: dict[object, list[Variant]] = defaultdict(list)
        for variant in variants:
            rows[variant.options, not variant.microbatches].append(variant)
        by_cell = {(n, v.microbatches or 1): v for n, row in enumerate(rows.values()) for v in row}
        self._lines = [SweepLine(sorted(v.microbatches or 1 for v in row)) for row in rows.values()]
        found: dict[Variant, Outcome] = {}
        most = min(len(variants), FIRST * len(self._lines) + self.top)
        with Activity("simulating", most, "variants") as simulating:
            while (cell := next_cell(self._lines, self.top)) is not None:
                found[by_cell[cell]] = self._simulate(by_cell[cell], *cell)
                simulating.done = len(found)
        for number, line in enumerate(self._lines):
            for count, seconds in line.estimates().items():
                found[by_cell[number, count]] = Estimated(seconds)
        return {space.name(v, base): found.get(v, "not tried, as others of its kind were refused") for v in variants}

    def _simulate(self, variant: Variant, number: int, count: int) -> Simulated | str:
        line = self._lines[number]
        estimated = line.estimates().get(count) if line.first() is None else None
        found = outcome_of(variant, self.compiled, self.simulated)
        if isinstance(found, str):
            line.refused.add(count)
            return found
        line.seconds[count] = found.seconds
        if estimated is not None and found.seconds:
            self.worst = max(self.worst, abs(estimated / found.seconds - 1))
        return found
