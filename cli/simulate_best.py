"""Ranks the variants of a sweep without simulating all of them: `pwc simulate --sweep --top`."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.cli.simulate_variants import NOT_TRIED, Compared, Variant, outcome_of
from pathways.compiler.pass_manager import Options
from pathways.compiler.simulate.estimate import Cell, Estimated, Outcome, SweepLine, fastest, next_cell
from pathways.compiler.simulate.figures import Simulated, StepFigures
from pathways.dialect.activities import Activity
from pathways.dialect.plan.nouns import Plan


@dataclass
class BestVariants:
    """Simulates only what is needed to rank the variants: some numbers of microbatches, then the `top` fastest.

    `batch_rows` are the rows of the batch, which a number of microbatches must divide; 0: unknown.
    """

    compiled: Callable[[Variant], Plan]
    simulated: Callable[[Plan], Simulated]
    top: int
    batch_rows: int = 0
    errors: list[float] = field(default_factory=list[float])
    """Relative errors of the estimates of variants that were simulated afterwards."""

    def outcomes(self, base: Variant, space: Compared) -> dict[str, Outcome]:
        """Returns the outcome of each variant, by its name, in the order of `space`."""
        variants, found = space.variants(base), dict[Variant, Outcome]()
        rows: dict[tuple[Options, bool], list[Variant]] = defaultdict(list)
        refused: dict[int, Outcome] = {}
        for variant in variants:
            if (count := variant.microbatches) and self.batch_rows % count:  # refused under every schedule
                if count not in refused:
                    refused[count] = outcome_of(variant, self.compiled, self.simulated)
                found[variant] = refused[count]
            else:
                rows[variant.options, not variant.microbatches].append(variant)
        rows = dict(sorted(rows.items(), key=lambda row: str(row[0][0].schedule)))  # traces may depend on the schedule
        by_cell = {(n, v.microbatches or 1): v for n, row in enumerate(rows.values()) for v in row}
        lines = [SweepLine(sorted(v.microbatches or 1 for v in row)) for row in rows.values()]
        with Activity("simulating", 0, "variants") as simulating:
            while (cell := next_cell(lines, self.top)) is not None:
                found[by_cell[cell]] = self._simulate(lines[cell[0]], by_cell[cell], cell)
                simulating.done = len(found)
        for seconds, cell, is_simulated in fastest(lines):
            if not is_simulated:
                found[by_cell[cell]] = Estimated(seconds)
        return {space.name(v, base): found.get(v, NOT_TRIED) for v in variants}

    def _simulate(self, line: SweepLine, variant: Variant, cell: Cell) -> StepFigures | str:
        _, count = cell
        estimated = None if line.next_to_simulate() is not None else line.estimates().get(count)
        found = outcome_of(variant, self.compiled, self.simulated)
        if isinstance(found, str):
            line.refused.add(count)
            return found
        line.seconds[count] = found.seconds
        if estimated is not None and found.seconds:
            self.errors.append(abs(estimated / found.seconds - 1))
        return found

    def note(self, outcomes: dict[str, Outcome]) -> str:
        """Tells how many variants are only estimated, and how wrong the checked estimates were."""
        count = sum(isinstance(outcome, Estimated) for outcome in outcomes.values())
        checked = f" (errors of {len(self.errors)} others: at most {max(self.errors):.1%})" if self.errors else ""
        return f", {count:,} of them estimated{checked}" if count else ""
