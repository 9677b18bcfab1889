"""Implements the placement policy `optimal`: it finds the least cost under the shared lower bound, as a mixed-integer
program that the solver HiGHS (scipy) solves.

Binary x[s, i] puts slice s on island i. Continuous z[a, b] says that two slices that exchange data are on different
islands. The run time T has the same lower bounds as in `cost.py`, with the fastest interconnect: the start times of
calls along every edge, the work of every slice, the traffic of every link. The search stops at a number of nodes, so
that equal inputs give equal plans, and reports its gap. With a time limit the answer depends on the machine, and the
plan is marked.
"""

import itertools
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pathways.compiler.placement.balanced import balanced
from pathways.compiler.placement.cost import DCN_TIEBREAK_WEIGHT, CostModel
from pathways.compiler.placement.min_cut import min_cut
from pathways.compiler.placement.problem import FreeDevices, Placement
from pathways.compiler.placement.runner_up import seconds as shown
from pathways.compiler.placement.spread import spread
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.late_imports import import_late
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Optimal:
    """Finds the least cost under the shared model by a mixed-integer program, stopped at `nodes` or after `seconds`.

    The program is solved by HiGHS. The answers of the other policies are candidates too, so `optimal` is never worse.
    """

    nodes: int = 500
    seconds: float | None = None

    def __call__(self, graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
        model = CostModel(graph, topology)
        answers = {name: a for name, p in _OTHERS.items() if (a := _attempt(p, graph, topology)) is not None}
        solved = _Milp(model).solve(self.nodes, self.seconds)
        if solved.where is not None:
            free = FreeDevices(topology, model.slices)
            bindings = {r.symbol: r.bound or free.take(r, solved.where[r.symbol]) for r in model.slices}
            answers[_PROGRAM] = Placement(bindings, {})
        if not answers:
            raise FreeDevices(topology, model.slices).refuse()
        costs = {name: model.estimate(_where(a)).cost for name, a in answers.items()}
        name = min(costs, key=lambda n: float(f"{costs[n]:.9g}"))  # a tie goes to the simplest policy
        best, cost = answers[name], costs[name]
        how = "by the mixed-integer program" if name == _PROGRAM else f"as {name}: nothing better was found"
        gap = max(0.0, 1 - solved.bound / cost) if cost > 0 else 0.0
        note = f"{shown(cost)} a run, {how}; gap to the proved bound {gap:.1%}"
        return Placement(best.bindings, dict.fromkeys(best.bindings, note), reproducible=self.seconds is None)


@cache
def _scipy(part: str) -> Any:
    """Imports a subpackage of scipy at its first use: that import takes a third of the import time of this library."""
    return import_late(f"scipy.{part}")


_PROGRAM = "the mixed-integer program"
_OTHERS = {"spread": spread, "balanced": balanced, "min-cut": min_cut}


def _attempt(policy: Any, graph: "nx.DiGraph[Any]", topology: Topology) -> Placement | None:
    try:
        return policy(graph, topology)
    except PathwaysError:  # another policy may be able to place these slices
        return None


def _where(placement: Placement) -> dict[str, str]:
    return {s: b.island for s, b in placement.bindings.items()}


@dataclass(frozen=True)
class _Solved:
    """The answer of the mixed-integer program, if it has one, and the proved lower bound of the cost."""

    where: dict[str, str] | None
    bound: float


class _Milp:
    """The mixed-integer program of a cost model. Costs are scaled to match the tolerances of the solver."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.islands = model.topology.islands
        self.symbols = list(model.devices)
        self.x = {(s, i.name): k for k, (s, i) in enumerate((s, i) for s in self.symbols for i in self.islands)}
        pairs = {frozenset(p) for p in model.traffic} | {
            frozenset((model.calls[p][0], s))
            for (s, _), operands in zip(model.calls, model.operands, strict=True)
            for p, _ in operands
            if model.calls[p][0] != s
        }
        self.z = {p: len(self.x) + k for k, p in enumerate(sorted(pairs, key=sorted))}
        self.start = len(self.x) + len(self.z)
        self.time = self.start + len(model.calls)
        self.count = self.time + 1
        self.rows: list[dict[int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        everything = sum(model.work.values()) / min(model.rate(i) for i in self.islands)
        everything += model.between(sum(model.traffic.values()))
        self.scale = 1 / everything if everything > 0 else 1.0

    def row(self, coefficients: dict[int, float], lower: float = -np.inf, upper: float = np.inf) -> None:
        self.rows.append(coefficients)
        self.lower.append(lower)
        self.upper.append(upper)

    def solve(self, nodes: int, limit: float | None) -> _Solved:
        self._legal()
        self._apart()
        self._times()
        low, high = np.zeros(self.count), np.full(self.count, np.inf)
        high[: self.start] = 1.0
        for request in self.model.slices:
            for island in self.islands:
                there = request.bound is None or request.bound.island == island.name
                if not (request.fits(island) and there):
                    high[self.x[request.symbol, island.name]] = 0.0
        integral = np.zeros(self.count)
        integral[: len(self.x)] = 1
        objective = np.zeros(self.count)
        objective[self.time] = 1.0
        for pair, k in self.z.items():
            objective[k] = DCN_TIEBREAK_WEIGHT * self.scale * self.model.between(self._traffic(pair))
        matrix = _matrix(self.rows, self.count)
        options: dict[str, Any] = {"node_limit": nodes, "mip_rel_gap": 1e-6}
        if limit is not None:
            options["time_limit"] = limit
        optimize = _scipy("optimize")
        constraints = optimize.LinearConstraint(matrix, np.array(self.lower), np.array(self.upper))
        found: Any = optimize.milp(
            objective,
            integrality=integral,
            bounds=optimize.Bounds(low, high),
            constraints=constraints,
            options=options,
        )
        bound = found.mip_dual_bound
        proved = 0.0 if bound is None or not np.isfinite(bound) else float(bound) / self.scale
        if found.x is None:
            return _Solved(None, proved)
        chosen = {s: max(self.islands, key=lambda i, s=s: found.x[self.x[s, i.name]]).name for s in self.symbols}
        return _Solved(chosen, proved)

    def _traffic(self, pair: frozenset[str]) -> int:
        a, b = sorted(pair)
        return self.model.traffic.get((a, b), 0) + self.model.traffic.get((b, a), 0)

    def _legal(self) -> None:
        for symbol in self.symbols:
            self.row({self.x[symbol, i.name]: 1.0 for i in self.islands}, 1, 1)
        for island in self.islands:
            taken = {self.x[s, island.name]: float(n) for s, n in self.model.devices.items()}
            self.row(taken, upper=island.size)
        for request in self.model.slices:
            if request.near is not None:
                for island in self.islands:
                    self.row({self.x[request.symbol, island.name]: 1.0, self.x[request.near, island.name]: -1.0}, 0, 0)
        self._symmetry()

    def _symmetry(self) -> None:
        """Breaks symmetry: of equal islands, a slice uses one only if an earlier slice uses the one before it."""
        named = {r.pin for r in self.model.slices} | {r.bound.island for r in self.model.slices if r.bound}
        alike: dict[Any, list[str]] = {}
        for island in self.islands:
            if island.name not in named:
                key = (island.size, island.kind, island.memory, self.model.rate(island))
                alike.setdefault(key, []).append(island.name)
        for names in alike.values():
            for before, name in itertools.pairwise(names):
                for k, symbol in enumerate(self.symbols):
                    self.row({self.x[symbol, name]: 1.0} | {self.x[s, before]: -1.0 for s in self.symbols[:k]}, upper=0)

    def _apart(self) -> None:
        for pair, k in self.z.items():
            a, b = sorted(pair)
            for island in self.islands:
                for p, q in ((a, b), (b, a)):
                    self.row({k: 1.0, self.x[p, island.name]: -1.0, self.x[q, island.name]: 1.0}, lower=0)

    def _times(self) -> None:
        model, scale = self.model, self.scale
        for number, ((symbol, flops), operands) in enumerate(zip(model.calls, model.operands, strict=True)):
            self.row({self.time: 1.0, self.start + number: -1.0} | self._seconds(symbol, -flops), lower=0)
            for producer, size in operands:
                other, work = model.calls[producer]
                row = {self.start + number: 1.0, self.start + producer: -1.0} | self._seconds(other, -work)
                inside = 0.0
                if other != symbol:
                    inside = scale * model.inside(symbol, size)
                    row[self.z[frozenset((other, symbol))]] = -(scale * model.between(size) - inside)
                self.row(row, lower=inside)
        for symbol, work in model.work.items():
            self.row({self.time: 1.0} | self._seconds(symbol, -work), lower=0)
        self._links()

    def _links(self) -> None:
        """Bounds T by each island's traffic. `u` of a pair on an island is 1 if exactly one of the two is there."""
        for island in self.islands:
            row = {self.time: 1.0}
            for pair in self.z:
                if load := self.scale * self.model.between(self._traffic(pair)):
                    row[self._is_cut_at(pair, island.name)] = -load
            if len(row) > 1:
                self.row(row, lower=0)

    def _is_cut_at(self, pair: frozenset[str], island: str) -> int:
        a, b = sorted(pair)
        u = self.count
        self.count += 1
        for p, q in ((a, b), (b, a)):
            self.row({u: 1.0, self.x[p, island]: -1.0, self.x[q, island]: 1.0}, lower=0)
        return u

    def _seconds(self, symbol: str, flops: float) -> dict[int, float]:
        return {self.x[symbol, i.name]: self.scale * flops / self.model.rate(i) for i in self.islands if flops}


def _matrix(rows: list[dict[int, float]], count: int) -> Any:
    values = [v for row in rows for v in row.values()]
    columns = [c for row in rows for c in row]
    starts = np.cumsum([0, *(len(row) for row in rows)])
    return _scipy("sparse").csr_array((values, columns, starts), shape=(len(rows), count))
