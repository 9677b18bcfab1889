"""Tests `pwc simulate` and `pwc calibrate`: what they print, the trace of a simulated step, and wrong input."""

import json
from pathlib import Path

import pytest
from support.processes import pwc_here

from pathways.dialect.topology import load_topology
from pathways.viz.actual import read_trace

MODEL = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw

made = pw.make_virtual_device_set()
places = [NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2)]
first, last = (jax.jit(lambda x: jnp.tanh(x) * 2, in_shardings=place) for place in places)


@pw.program(example_args=(jax.ShapeDtypeStruct((8, 4), "float32"),))
def step(x):
    return last(first(x))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulate") / "model.py"
    path.write_text(MODEL)
    return path


def test_a_source_and_its_plan_have_the_same_prediction(model: Path, tmp_path: Path) -> None:
    spec, plan = "islands=2,devices=2,flops=1e9", tmp_path / "plan.bin"
    assert pwc_here("compile", str(model), "--topology", spec, "-o", str(plan))[0] == 0
    of_source, of_plan = (
        json.loads(pwc_here("simulate", source, "--topology", spec, "--json")[1]) for source in (str(model), str(plan))
    )
    assert of_source == of_plan and of_plan["seconds"] > 0
    assert [island["name"] for island in of_plan["islands"]] == ["island0", "island1"]
    assert of_plan["links"] == [
        {"source": "island0", "target": "island1", "bytes": 128, "busy": pytest.approx(0, abs=0.1)}
    ]
    assert of_plan["critical_path"][-1]["end"] == of_plan["seconds"] and "model.py:" in str(of_plan["critical_path"])


def test_other_schedules_and_placements_are_listed_with_what_refuses_them(model: Path) -> None:
    code, printed, _ = pwc_here(
        "simulate", str(model), "--topology", "islands=2,devices=2", "--compare-schedules", "--compare-placements"
    )
    assert code == 0
    rows = [line.split()[:2] for line in printed.partition("compared with")[2].splitlines() if line.strip()]
    assert ["schedule", "1f1b"] in rows and ["placement", "optimal"] in rows and ["placement", "pinned"] in rows
    assert "refused (PWC0306" in printed


def test_a_simulated_step_is_a_trace_that_viz_reads(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "predicted.json"
    code, printed, _ = pwc_here("simulate", str(model), "--topology", "islands=2,devices=2", "--trace", str(trace))
    assert code == 0 and f"wrote    {trace}" in printed
    (run,) = read_trace(trace)
    assert {(row.island, row.device) for row in run.rows} == {(f"island{i}", d) for i in range(2) for d in range(2)}
    assert all(cell.begin < cell.end for row in run.rows for cell in row.cells)


def test_a_lost_host_costs_the_steps_since_the_snapshot(model: Path) -> None:
    spec = ["--topology", "islands=2,devices=2", "--host-lost", "1050", "--snapshot-every", "100"]
    found = json.loads(pwc_here("simulate", str(model), *spec, "--restart-seconds", "5", "--json")[1])
    assert found["host_lost"] == {"repeated": 50, "seconds": pytest.approx(5 + 50 * found["seconds"])}
    printed = pwc_here("simulate", str(model), *spec)[1]
    assert "50 steps since the snapshot after step 1,000 are done again" in printed


def test_times_of_a_recorded_run_replace_estimates(model: Path, tmp_path: Path) -> None:
    trace, spec = tmp_path / "trace.json", ["--topology", "islands=2,devices=2"]
    assert pwc_here("run", str(model), *spec, "--repeat", "2", "--trace", str(trace))[0] == 0
    code, printed, _ = pwc_here("simulate", str(model), *spec, "--times", str(trace), "--json")
    assert code == 0 and json.loads(printed)["seconds"] > 0
    assert pwc_here("simulate", str(model), *spec, "--times", str(model))[0] == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--slower", "island0=2"], 2),
        (["--slower", "island0:one=2"], 2),
        (["--slower", "island0:0=fast"], 2),
        (["--slower", "island0:0=-1"], 2),
        (["--link", "island0:island1=0"], 2),
        (["--slower", "island0:\u00b2=2"], 2),
        (["--slower", "island0:0=1e308"], 2),
        (["--link", "island0:island1=1e-320"], 2),
        (["--slower", "island0:7=2"], 3),
        (["--link", "island0:island7=0.5"], 3),
        (["--topology", "islands=2,devices=2,efficiency=1.5"], 2),
        (["--topology", "islands=2,devices=2,call_us=fast"], 2),
        (["--topology", "islands=2,devices=2,host_cores=2"], 2),
    ],
)
def test_wrong_input_is_refused(model: Path, options: list[str], code: int) -> None:
    spec = [] if "--topology" in options else ["--topology", "islands=2,devices=2"]
    found, _, stderr = pwc_here("simulate", str(model), *spec, *options)
    assert found == code, stderr


def test_a_dump_takes_only_options_for_choices_that_it_has_not_made(model: Path, tmp_path: Path) -> None:
    spec = ["--topology", "islands=2,devices=2"]
    assert pwc_here("compile", str(model), *spec, "--dump-phases-to", str(tmp_path))[0] == 0
    placed = next(tmp_path.glob("*.place.mlir"))
    assert pwc_here("simulate", str(placed))[0] == 0
    for options in (["--placement", "pinned"], ["--compare-placements"], ["--compare-schedules"], spec):
        code, _, stderr = pwc_here("simulate", str(placed), *options)
        assert code == 2 and "PWC0801" in stderr, options


def test_a_refused_choice_does_not_hide_the_others(model: Path) -> None:
    code, printed, stderr = pwc_here(
        "simulate", str(model), "--topology", "islands=2,devices=2", "--placement", "pinned", "--compare-placements"
    )
    assert code == 3 and "PWC0306" in stderr and "placement optimal" in printed


def test_a_plan_may_have_any_name(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "myplan"
    assert pwc_here("compile", str(model), "--topology", "islands=2,devices=2", "-o", str(path))[0] == 0
    assert pwc_here("simulate", str(path))[0] == 0


def test_a_plan_has_its_schedule(moe_plan: Path) -> None:
    assert pwc_here("simulate", str(moe_plan), "--schedule", "1f1b")[0] == 2


@pytest.mark.long("it measures this machine: 5 s")
def test_a_calibrated_topology_simulates(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    code, printed, _ = pwc_here("calibrate", "--topology", "islands=2,devices=2", "-o", str(path))
    assert code == 0 and str(path) in printed
    found = load_topology(path)
    assert found.dcn_us is not None and found.controller_us and found.host_cores and len(found.islands) == 2
    island = found.islands[0]
    assert (
        all((island.flops, island.memory_gbps, island.call_us, island.host_us, island.ici_us)) and island.ici_gbps > 0
    )
    code, printed, _ = pwc_here("simulate", str(model), "--topology", str(path), "--one-process")
    assert code == 0 and "assumed" not in printed
