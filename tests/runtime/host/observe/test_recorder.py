"""Tests what a trace of runs contains."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import pwc_here, run_python

import pathways as pw
from pathways.dialect.plan.instructions import Run
from pathways.runtime.host.observe.perfetto import producers

jit: Any = jax.jit
X = np.ones((256, 256), np.float32)


def chain() -> Any:
    made = pw.make_virtual_device_set()
    first, second = (NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))

    def square(x: Any) -> Any:
        return x @ x

    def total(x: Any) -> Any:
        return x.sum()

    f, g = jit(square, in_shardings=first), jit(total, in_shardings=second)
    return pw.program(lambda x: g(f(x)))


@pytest.mark.embedded
def test_a_trace_holds_launches_planned_times_and_stages_of_runs(tmp_path: Path) -> None:
    program, path = chain(), tmp_path / "trace.json"
    program(X).block_until_ready()
    with pw.trace(path), pw.Client("tracer"):
        for _ in range(3):
            program(X).block_until_ready()
        with pytest.raises(pw.PathwaysError, match="one trace at a time"), pw.trace(path):
            pass
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {"controller", "enqueuing", "device 0", "device 1", "device 0, planned"} <= names
    assert any(n.startswith("runs of tracer") for n in names)
    queues = [e for e in events if e["ph"] == "X" and e["pid"] > 1 and e["tid"] % 2 == 0 and "step" in e["args"]]
    assert {"square", "total"} == {e["name"] for e in queues}
    assert len(queues) == 3 * 2 * 2  # runs, computations, devices
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] > 1}
    assert [rows[n] for n in range(4)] == ["device 0", "device 0, planned", "device 1", "device 1, planned"]
    planned = [e for e in events if e["ph"] == "X" and e["pid"] > 1 and e["tid"] % 2 == 1]
    assert len(planned) == len(queues)
    assert len([e for e in events if e["ph"] == "s"]) == len([e for e in events if e["ph"] == "f"]) == 3
    for total in (e for e in queues if e["name"] == "total"):
        before = [e for e in queues if e["name"] == "square" and e["args"]["run"] == total["args"]["run"]]
        assert all(e["ts"] <= total["ts"] for e in before) and "test_recorder.py" in total["args"]["line"]
    stages = {e["name"].split(": ")[1] for e in events if e["ph"] == "b"}
    assert {"enqueues", "on devices"} <= stages


FIRST = """
import json, sys
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
slice = NamedSharding(pw.make_virtual_device_set().add_slice(devices=4).mesh("x"), P("x"))
f = jax.jit(lambda x: x + 1, in_shardings=slice, out_shardings=slice)
with pw.trace(sys.argv[1]):
    pw.program(lambda x: f(x))(np.ones(4, np.float32)).block_until_ready()
events = json.load(open(sys.argv[1]))["traceEvents"]
print(len([e for e in events if e["ph"] == "X" and "line" in e["args"]]))
"""


def test_the_first_launch_of_a_process_is_recorded_on_all_devices(tmp_path: Path) -> None:
    assert run_python("-c", FIRST, str(tmp_path / "trace.json")).stdout.strip() == "4"


def test_producers_are_found_through_transfers() -> None:
    plan = chain().lower(X).compile().plan
    steps = {i.name: i.step for s in plan.streams for i in s.instructions if isinstance(i, Run)}
    assert producers(plan) == {steps["square"]: [], steps["total"]: [steps["square"]]}


def test_pwc_run_writes_a_trace_and_refuses_an_unwritable_path(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code, _, stderr = pwc_here("run", str(root / "samples" / "mixture_of_experts.py"), "--trace", str(path))
    assert code == 0, stderr
    assert json.loads(path.read_text())["traceEvents"]
    code, _, stderr = pwc_here(
        "run", str(root / "samples" / "mixture_of_experts.py"), "--trace", str(tmp_path / "no" / "f")
    )
    assert code == 2 and "PWC0606" in stderr
