"""Ranks the possible splits of a loss by predicted time, and records why the others were dropped. Only splits whose
lower bound is good enough are simulated. It is the main loop of `pw.search`; `pathways/api/search.py` calls it.

Every candidate gets a lower bound. Candidates are simulated, the least bound first, until no bound is below the last
row shown. So the best row is the best of all candidates, according to the predictions. Each stages x data x model has
one row: its best number of microbatches, schedule and remat.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pathways.compiler.machines import Machines
from pathways.compiler.search.cuts import CutCache
from pathways.compiler.search.predict import Prediction, again_where_full, least_seconds, memory_of_slices, predict
from pathways.compiler.search.profile import Profile, Profiles
from pathways.compiler.search.stage_costs import StageCost, stage_costs
from pathways.dialect.activities import Activity
from pathways.dialect.choice import SplitChoice

_EQUAL = 1e-9
"""Relative difference up to which two times are equal."""


@dataclass(frozen=True)
class Row:
    """A split, its prediction, and the memory of a device on its islands, if known."""

    choice: SplitChoice
    places: tuple[int, ...]
    """The positions at which the spine of the loss is cut."""
    costs: tuple[StageCost, ...]
    prediction: Prediction
    limit: float | None
    plan: "PlanFigures | None" = None

    @property
    def _plan_figures(self) -> "PlanFigures | None":
        """The figures of the compiled plan, if there is one."""
        return None if self.plan is None or self.plan.refused else self.plan

    @property
    def seconds(self) -> float:
        return self.prediction.seconds if (plan := self._plan_figures) is None else plan.seconds

    @property
    def memory(self) -> float:
        return self.prediction.memory if (plan := self._plan_figures) is None else plan.memory

    @property
    def bubble(self) -> float:
        return self.prediction.bubble if (plan := self._plan_figures) is None else plan.bubble

    @property
    def dcn_bytes(self) -> float:
        return self.prediction.dcn_bytes if (plan := self._plan_figures) is None else plan.dcn_bytes

    @property
    def fits(self) -> bool:
        return self.limit is None or self.memory <= self.limit


@dataclass(frozen=True)
class PlanFigures:
    """The figures of the compiled plan of a split, in place of its prediction. `refused`: why there is none."""

    seconds: float = 0.0
    bubble: float = 0.0
    memory: float = 0.0
    dcn_bytes: float = 0.0
    refused: str = ""


@dataclass
class Dropped:
    """The candidates dropped for one reason: their number, and the one that came closest."""

    reason: str
    count: int = 0
    closest: str = ""
    _least: float = float("inf")

    def add(self, measure: float, shown: str) -> None:
        self.count += 1
        if measure < self._least:
            self._least, self.closest = measure, shown


@dataclass
class Ranking:
    """The rows, the best first, and the dropped candidates."""

    rows: list[Row]
    tried: int
    dropped: list[Dropped]


@dataclass(frozen=True, eq=False)
class _Costed:
    """A candidate with its balanced cut. `full`: this cut exceeds the memory, so another one is needed."""

    choice: SplitChoice
    places: tuple[int, ...]
    costs: list[StageCost]
    limits: Sequence[float | None]
    least: float
    full: bool


@dataclass
class Ranker:
    """Ranks the candidates of one loss on one machine."""

    profiles: Profiles
    machine: Machines
    batch: int
    memory: Dropped = field(default_factory=lambda: Dropped("do not fit the memory of a device"))
    spans: Dropped = field(default_factory=lambda: Dropped("need a slice with more devices than an island has"))
    slower: Dropped = field(default_factory=lambda: Dropped("are slower than all rows shown"))
    short: Dropped = field(default_factory=lambda: Dropped("have more stages than the loss has operations to cut at"))
    others: Dropped = field(default_factory=lambda: Dropped("have the same split as a row, and are slower"))
    _cuts: CutCache = field(default_factory=CutCache)
    _best: dict[tuple[int, int, int], Row] = field(default_factory=dict[tuple[int, int, int], Row])

    def rank(self, choices: Iterable[SplitChoice], top: int) -> Ranking:
        """Returns the best `top` splits."""
        tried = list(choices)
        bounded = sorted(self._bounded(tried), key=lambda c: (c.least, c.choice.devices, c.choice.microbatches))
        with Activity("predicting", len(bounded), "splits") as predicting:
            for predicting.done, one in enumerate(bounded):
                self._visit(one, top)
        rows = sorted(self._best.values(), key=better)
        for row in rows[top:]:
            self.slower.add(row.seconds, f"{in_words(row.choice)}: {row.seconds:.4g} s")
        dropped = [d for d in (self.memory, self.spans, self.short, self.slower, self.others) if d.count]
        return Ranking(rows[:top], len(tried), dropped)

    def each(self, choices: Iterable[SplitChoice]) -> Ranking:
        """Returns a row for each of these, whether or not it fits."""
        rows: list[Row] = []
        for choice in choices:
            profile = self._profile(choice)
            places = self._cuts.balanced(profile, choice.stages * choice.chunks)
            costs = stage_costs(profile, places, choice, self.machine)
            limits = [self.machine.topology.island(name).memory for name in choice.islands]
            known = [limit for limit in limits if limit is not None]
            played = predict(costs, choice, self.machine.states)
            rows.append(Row(choice, places, tuple(costs), played, min(known, default=None)))
        return Ranking(sorted(rows, key=better), len(rows), [])

    def _bounded(self, choices: Iterable[SplitChoice]) -> Iterator[_Costed]:
        """Yields each candidate with its costs and its lower bound. Drops those that surely need too much memory."""
        for choice in choices:
            profile, stages = self._profile(choice), choice.stages * choice.chunks
            if stages > len(profile.spine):
                self.short.add(stages, f"{in_words(choice)}: {stages} stages of {len(profile.spine)} operations")
                continue
            places = self._cuts.balanced(profile, stages)
            costs = stage_costs(profile, places, choice, self.machine)
            if not choice.islands:  # it needs more devices than an island has
                self.spans.add(s := least_seconds(costs, choice), f"{in_words(choice)}: {s:.4g} s at best")
                continue
            limits = [self.machine.topology.island(name).memory for name in choice.islands]
            costs = again_where_full(costs, choice, self.machine.states, limits)
            over = self._excess(costs, choice, limits)
            if over > 1 and self._mean_excess(costs, choice, limits) > 1:
                self.memory.add(over, f"{in_words(choice)}: {over:.2f} times the memory of a device")
                continue
            yield _Costed(choice, places, costs, limits, least_seconds(costs, choice), over > 1)

    def _visit(self, one: _Costed, top: int) -> None:
        """Simulates a candidate if it may be one of the best, and keeps the best of its split."""
        split = (one.choice.stages, one.choice.data, one.choice.model)
        mine = self._best.get(split)
        worst = sorted(r.seconds for r in self._best.values())[top - 1] if len(self._best) >= top else float("inf")
        if one.least >= min(worst, mine.seconds if mine else worst):
            (self.others if mine else self.slower).add(one.least, f"{in_words(one.choice)}: {one.least:.4g} s at best")
            return
        if one.full:
            found = self._fitting(one)
            if found is None:
                over = self._excess(one.costs, one.choice, one.limits)
                self.memory.add(over, f"{in_words(one.choice)}: {over:.2f} times the memory of a device")
                return
            one = found
        taken = replace(one.choice, remat="auto" if any(c.again for c in one.costs) else "no")
        known = [limit for limit in one.limits if limit is not None]
        row: Row | None = Row(
            taken,
            one.places,
            tuple(one.costs),
            predict(one.costs, taken, self.machine.states),
            min(known, default=None),
        )
        if mine is None or row.seconds < mine.seconds * (1 - _EQUAL):
            self._best[split], row = row, mine
        if row is not None:
            self.others.add(row.seconds, f"{in_words(row.choice)}: {row.seconds:.4g} s")

    def _fitting(self, one: _Costed) -> _Costed | None:
        """Returns the candidate with a cut that fits; None if there is none."""
        profile = self._profile(one.choice)
        places = self._cuts.fitting(profile, one.choice, one.limits, self.machine.states)
        if places is None:
            return None
        costs = stage_costs(profile, places, one.choice, self.machine)
        fits = self._excess(costs, one.choice, one.limits) <= 1
        return replace(one, places=places, costs=costs) if fits else None

    def _excess(self, costs: Sequence[StageCost], choice: SplitChoice, limits: Sequence[float | None]) -> float:
        """Returns the memory of the fullest slice as a fraction of its limit; 0 if no limit is known."""
        pairs = zip(memory_of_slices(costs, choice, self.machine.states), limits, strict=True)
        return max((m / limit for m, limit in pairs if limit is not None), default=0.0)

    def _mean_excess(self, costs: Sequence[StageCost], choice: SplitChoice, limits: Sequence[float | None]) -> float:
        """Returns the memory of all slices as a fraction of their limits: above 1, no cut fits."""
        return sum(memory_of_slices(costs, choice, self.machine.states)) / sum(m or float("inf") for m in limits)

    def _profile(self, choice: SplitChoice) -> Profile:
        return self.profiles.at(self.batch // choice.microbatches, choice.model)


def in_words(choice: SplitChoice) -> str:
    """Formats a candidate in a few words."""
    return f"{choice.split}, {choice.microbatches} microbatches, {choice.schedule}"


def better(row: Row) -> tuple[bool, bool, float, int, int]:
    """Returns the sort key of a row: rows that compile and fit first, then time, then devices, then microbatches."""
    refused = row.plan is not None and bool(row.plan.refused)
    return refused, not row.fits, row.seconds, row.choice.devices, row.choice.microbatches
