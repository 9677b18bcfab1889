"""Generates random placement problems: slices with requests, calls on the slices, topologies with enough devices."""

import random
from typing import Any

import networkx as nx

from pathways.compiler.placement.problem import SliceRequest
from pathways.dialect.topology import Island, Topology


def make_graph(slices: list[SliceRequest], calls: list[tuple[str, float]], edges: dict[tuple[int, int], int]) -> Any:
    """Builds a graph of calls, given as (slice, flops) in program order."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.graph["slices"] = tuple(slices)
    devices = {r.symbol: r.devices for r in slices}
    for number, (symbol, flops) in enumerate(calls):
        graph.add_node(number, name=f"f{number}", slice=symbol, flops=flops, devices=devices[symbol], bytes=0)
    for (here, there), size in edges.items():
        graph.add_edge(here, there, bytes=size)
    return graph


def random_problem(seed: int) -> tuple[Any, Topology]:
    """Generates two to eight slices and up to 24 calls, and two to four islands with spare devices.

    Islands vary in flops and memory.
    """
    rng = random.Random(seed)
    slices = [SliceRequest(f"s{i}", rng.choice((1, 2, 4)), memory=rng.randrange(100)) for i in range(rng.randint(2, 8))]
    calls = [(rng.choice(slices).symbol, rng.uniform(0, 1e10)) for _ in range(rng.randint(2, 24))]
    edges: dict[tuple[int, int], int] = {}
    for number in range(1, len(calls)):
        for source in rng.sample(range(number), min(number, rng.randint(1, 2))):
            edges[source, number] = rng.randrange(1, 50_000_000)
    asked = sum(r.devices for r in slices)
    count = rng.randint(2, 4)
    islands = [
        Island(
            f"i{i}",
            devices=max(4, -(-asked // count) + 4),
            memory=rng.choice((None, 200)),
            flops=rng.choice((1e12, 3e12)),
        )
        for i in range(count)
    ]
    return make_graph(slices, calls, edges), Topology(tuple(islands), dcn_gbps=rng.choice((1.0, 12.5)))


def random_chain(seed: int) -> tuple[Any, Topology]:
    """Generates a chain of stages, called for one to eight microbatches, and equal islands with spare devices.

    Each island has spare devices for at least one stage.
    """
    rng = random.Random(seed)
    stages, per_stage = rng.randint(2, 8), rng.choice((1, 2, 4))
    slices = [SliceRequest(f"s{i}", per_stage) for i in range(stages)]
    work = [rng.uniform(1e8, 1e10) for _ in slices]
    sizes = [rng.randrange(1, 20_000_000) for _ in slices]
    calls: list[tuple[str, float]] = []
    edges: dict[tuple[int, int], int] = {}
    for _ in range(rng.randint(1, 8)):
        for stage in range(stages):
            if stage:
                edges[len(calls) - 1, len(calls)] = sizes[stage]
            calls.append((f"s{stage}", work[stage]))
    islands = rng.randint(2, 4)
    size = per_stage * (-(-stages // islands) + rng.randint(1, 2))
    machines = tuple(Island(f"i{i}", devices=size, flops=1e12) for i in range(islands))
    return make_graph(slices, calls, edges), Topology(machines, dcn_gbps=rng.choice((1.0, 12.5)))
