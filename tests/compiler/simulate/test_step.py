"""Tests simulated steps: their times follow from the machines, and plans that do not fit the machines are refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import pytest
from support.codes import code_of
from support.pipelines import linear, pipe

import pathways as pw
from pathways.compiler.machines import Machines
from pathways.compiler.simulate.durations import WhatIf, time_key
from pathways.compiler.simulate.engine import Waits
from pathways.compiler.simulate.figures import Simulated
from pathways.compiler.simulate.step import simulate_step
from pathways.compiler.simulate.work import CALL, TRANSFER, work_of
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Island, Topology

SLICES, MICROBATCHES = 2, 4
ISLANDS = tuple(
    Island(f"island{i}", devices=1, flops=1e9, efficiency=1.0, memory_gbps=1e9, call_us=1e-6) for i in range(SLICES)
)
FAST = Topology(ISLANDS, dcn_gbps=1e9)


@cache
def plan(schedule: str = "gpipe") -> Plan:
    program = pipe(slices=SLICES, microbatches=MICROBATCHES, stage=linear)
    return program.lowered().compile(FAST, schedule=schedule, merge=False).plan


def simulated(topology: Topology = FAST, schedule: str = "gpipe", **options: Any) -> Simulated:
    return simulate_step(plan(schedule), Machines(topology), **options)


def islands_with(**figures: Any) -> Topology:
    return replace(FAST, islands=tuple(replace(island, **figures) for island in ISLANDS))


def test_the_figures_of_a_topology_reach_the_plan() -> None:
    assert plan().topology == FAST


def test_twice_the_flops_halve_a_step_that_only_computes() -> None:
    assert simulated(islands_with(flops=2e9)).seconds == pytest.approx(simulated().seconds / 2, rel=1e-3)
    assert simulated(islands_with(efficiency=0.5)).seconds == pytest.approx(2 * simulated().seconds, rel=1e-3)


def test_slow_memory_bounds_a_computation_of_few_operations() -> None:
    slow = simulated(islands_with(memory_gbps=1e-6))
    assert slow.seconds > 2 * simulated().seconds
    half = simulated(islands_with(memory_gbps=5e-7))
    assert half.seconds == pytest.approx(2 * slow.seconds, rel=0.01)


def test_a_slower_device_delays_the_step_and_the_other_devices_wait() -> None:
    slow = simulated(changes=WhatIf(slower={("island1", 0): 3.0}))
    assert slow.seconds > 2 * simulated().seconds
    first, second = slow.islands
    assert first.busy < second.busy


def test_a_slow_link_is_on_the_critical_path() -> None:
    found = simulated(replace(FAST, dcn_gbps=1e-7))
    assert any(part.task.kind == TRANSFER for part in found.path)
    halved = simulated(replace(FAST, dcn_gbps=1e-7), changes=WhatIf(links={frozenset(("island0", "island1")): 0.5}))
    assert halved.seconds == pytest.approx(2 * found.seconds, rel=0.1)
    assert {(x.source, x.target) for x in found.links} == {("island0", "island1"), ("island1", "island0")}
    sent = {(x.source, x.target): x.bytes for x in found.links}
    decided = [d for d in plan().decisions if d.kind == "transfer"]
    assert sum(sent.values()) == sum(d.bytes * len(d.steps) for d in decided)


def test_hosts_that_enqueue_slowly_bound_the_step() -> None:
    found = simulated(islands_with(host_us=1e6))
    instructions = max(len([t for t in found.work.tasks if t.stream == s]) for s in range(SLICES))
    assert found.seconds == pytest.approx(instructions, rel=0.3) and Waits.HOST in {part.waited for part in found.path}
    together = simulated(islands_with(host_us=1e6), one_process=True)
    assert together.seconds == pytest.approx(len(found.work.tasks), rel=0.3)


def test_the_controller_works_for_each_host() -> None:
    found = simulated(replace(FAST, controller_us=5.0))
    assert found.controller == pytest.approx(SLICES * 5e-6)


def test_one_process_starts_a_run_once() -> None:
    topology = replace(FAST, controller_us=100.0)
    found = simulated(topology, one_process=True)
    assert found.controller == pytest.approx(1e-4)
    assert found.seconds == pytest.approx(simulated().seconds + 1e-4, rel=1e-3)


def test_measured_times_include_the_overhead_and_are_found_by_line() -> None:
    calls = [t for t in work_of(plan()).tasks if t.kind == CALL]
    slow = islands_with(call_us=1e6)
    names = dict.fromkeys((t.name for t in calls), 1.0)
    assert simulated(slow, measured=names).seconds == pytest.approx(simulated(measured=names).seconds)
    lines = {time_key(t.name, str(t.where)): 2.0 for t in calls}
    assert simulated(measured=names | lines).seconds == pytest.approx(2 * simulated(measured=names).seconds)
    missing = simulated(measured={"another": 1.0}).assumptions
    assert f"the time of {len(calls)} calls without a measured one" in missing


@pytest.mark.parametrize(
    "make",
    [
        lambda: simulated(changes=WhatIf(slower={("island0", 0): 0.0})),
        lambda: simulated(changes=WhatIf(slower={("island0", 0): float("nan")})),
        lambda: simulated(changes=WhatIf(links={frozenset(("island0", "island1")): -1.0})),
        lambda: simulated(measured={"stage0": -1.0}),
        lambda: simulated(replace(FAST, dcn_gbps=0.0)),
        lambda: simulated(replace(FAST, host_cores=0.0)),
        lambda: simulated(replace(FAST, dcn_us=-1.0)),
        lambda: simulated(islands_with(flops=-1.0)),
    ],
)
def test_numbers_out_of_their_range_are_refused(make: Callable[[], Simulated]) -> None:
    assert code_of(make) == "PWC0309"


def test_measured_times_replace_estimates() -> None:
    names = {t.name for t in work_of(plan()).tasks if t.kind == CALL}
    found = simulated(measured=dict.fromkeys(names, 1.0))
    per_device = [sum(t.kind == CALL and t.stream == s for t in found.work.tasks) for s in range(SLICES)]
    assert max(per_device) <= found.seconds <= sum(per_device)


def test_devices_that_share_one_core_take_the_time_of_all_work() -> None:
    found = simulated(replace(FAST, host_cores=1))
    work = sum(share.busy * found.seconds for share in simulated(replace(FAST, host_cores=99)).islands)
    assert found.seconds >= simulated().seconds and work > 0
    assert found.seconds == pytest.approx(sum(i.busy for i in simulated().islands) * simulated().seconds, rel=0.05)


@pytest.mark.parametrize("network", [{}, {"dcn_us": 1000.0}, {"dcn_us": 100.0, "dcn_gbps": 1e-5}])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble"])
def test_the_critical_path_has_no_hole_and_ends_with_the_step(schedule: str, network: dict[str, float]) -> None:
    found = simulated(replace(FAST, **network), schedule=schedule)
    assert found.path[0].start == 0.0 and found.path[-1].end == found.seconds
    assert all(b.start == pytest.approx(a.end) for a, b in pairwise(found.path))
    assert sum(part.end - part.start for part in found.path) == pytest.approx(found.seconds)
    assert 0 <= found.bubble < 1 and all(0 < island.busy <= 1 for island in found.islands)
    assert "critical path" in str(found) and "island0" in str(found)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Topology((Island("elsewhere", 1),)), "island0"),
        (lambda: Topology((ISLANDS[0], replace(ISLANDS[1], kind="h100"), Island("island2", 1))), ""),
        (lambda: Topology(ISLANDS[:1]), "island1"),
    ],
)
def test_a_plan_that_does_not_fit_the_machines_is_refused(make: Callable[[], Topology], words: str) -> None:
    topology = make()
    if not words:  # `any` matches every kind
        assert simulated(topology).seconds > 0
        return
    with pytest.raises(pw.PathwaysError, match=words) as caught:
        simulated(topology)
    assert caught.value.code == "PWC0309"


def test_changes_of_unknown_devices_and_links_are_refused() -> None:
    assert code_of(lambda: simulated(changes=WhatIf(slower={("island0", 1): 2.0}))) == "PWC0309"
    assert code_of(lambda: simulated(changes=WhatIf(slower={("nowhere", 0): 2.0}))) == "PWC0309"
    assert code_of(lambda: simulated(changes=WhatIf(links={frozenset(("island0", "nowhere")): 0.5}))) == "PWC0309"
    assert code_of(lambda: simulated(changes=WhatIf(links={frozenset(("island0",)): 0.5}))) == "PWC0309"
    assert code_of(lambda: simulated(changes=WhatIf(links={frozenset[str](): 0.5}))) == "PWC0309"
    with pytest.raises(pw.PathwaysError, match="from island0 to itself"):
        simulated(changes=WhatIf(links={frozenset(("island0",)): 0.0}))
    with pytest.raises(pw.PathwaysError, match="an island and a position") as caught:
        simulated(changes=WhatIf(slower={"island0:0": 2.0}))  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "PWC0309"


def test_only_figures_of_islands_in_use_are_assumed() -> None:
    unused = replace(FAST, islands=(*ISLANDS, Island("island2", devices=1)))
    assert not simulated(unused).assumptions
    assert simulated(replace(unused, islands=(replace(ISLANDS[0], flops=None), *ISLANDS[1:]))).assumptions
    known = {task.name: 1e-3 for task in work_of(plan()).tasks}
    assert not simulated(replace(FAST, islands=tuple(Island(i.name, 1) for i in ISLANDS)), measured=known).assumptions


def test_devices_that_always_compute_do_not_wait() -> None:
    """Rounding must not show a negative time."""
    for rate in (1e9, 3e9, 7e9):
        program: Any = pw.program(lambda x: x @ x)
        alone = Topology((Island("island0", 1, flops=rate, efficiency=1.0, memory_gbps=1e9, call_us=1e-9),))
        found = program.lower(jax.ShapeDtypeStruct((64, 64), "float32")).simulate(alone)
        assert found.bubble >= 0.0 and all(island.busy <= 1.0 for island in found.islands)


def test_a_loop_of_unknown_length_is_an_assumption() -> None:
    def until(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0, 0] < 10, lambda c: c @ c, x)

    def five(x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, c: c @ c, x)

    x = jax.ShapeDtypeStruct((8, 8), "float32")
    alone = replace(FAST, islands=ISLANDS[:1])
    found = [pw.program(jax.jit(f)).lower(x).simulate(alone) for f in (until, five)]
    (assumed,) = found[0].assumptions
    assert assumed.startswith("one turn of the loops on data in until") and not found[1].assumptions
