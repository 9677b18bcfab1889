"""Compares each placement with `optimal`, under the shared cost model: ratios over random graphs and chains.

    python bench/placements.py --problems 200

A ratio is the cost of a placement to that of `optimal` on the same problem. For every placement it prints the median,
the 90th percentile and the worst ratio, and the total time of its answers. Then it prints how often the gap was proved
to be zero.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pathways.compiler.placement import CostModel, find_placement

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
graphs: Any = importlib.import_module("support.random_graphs")
"""The problems that the tests use."""

NAMES = ("spread", "min-cut", "balanced", "optimal")


def measure(what: str, make: Callable[[int], tuple[Any, Any]], problems: int) -> None:
    ratios: dict[str, list[float]] = {n: [] for n in NAMES}
    took: dict[str, float] = dict.fromkeys(NAMES, 0.0)
    proved = 0
    for seed in range(problems):
        graph, topology = make(seed)
        model, costs = CostModel(graph, topology), dict[str, float]()
        for name in NAMES:
            start = time.perf_counter()
            answer = find_placement(name)(graph, topology)
            took[name] += time.perf_counter() - start
            costs[name] = model.estimate({s: b.island for s, b in answer.bindings.items()}).cost
            proved += any("bound 0.0%" in r for r in answer.reasons.values())
        for name in NAMES:
            ratios[name].append(costs[name] / costs["optimal"])
    print(f"{problems} {what}: cost / cost of optimal")
    for name, found in ratios.items():
        found.sort()
        middle, high = found[len(found) // 2], found[int(0.9 * len(found))]
        print(f"  {name:9} median {middle:6.3f}  90% {high:7.3f}  worst {found[-1]:7.3f}  in {took[name]:6.2f} s")
    print(f"  optimality proved for {proved}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    problems: int = parser.parse_args().problems
    measure("random graphs", graphs.random_problem, problems)
    measure("chains", graphs.random_chain, problems)


if __name__ == "__main__":
    main()
