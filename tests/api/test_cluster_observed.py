"""Tests what users observe of programs on a cluster: traces, status, costs, and checks for NaN and infinity."""

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.clusters import becomes, pid_of, send, this_cluster, values
from support.codes import code_of
from support.processes import pwc_here
from support.traces import events_of, launched, names_of
from support.two_islands import HERE, THERE, f, g, jit
from support.ways import WAYS, cluster_by

import pathways as pw
from pathways.api.process import Process, inside_of, process
from pathways.runtime.status import IslandStatus

TOPOLOGY = "islands=2,devices=2"
X = np.arange(1.0, 17.0, dtype=np.float32).reshape(4, 4)


@pw.program
def both(x: Any) -> Any:
    x = g(f(x))
    return x, f(x)


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def embedded(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Starts the cluster. Yields the state that this process has without a cluster."""
    outer = process()
    with cluster_by(request.param, TOPOLOGY):
        yield outer


def test_a_trace_shows_the_computations_of_all_hosts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    want = values(both(X))
    with pw.trace(path), pw.Client("tracer"):
        for _ in range(2):
            for ours, theirs in zip(values(both(X)), want, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        with pytest.raises(pw.PathwaysError, match="one trace at a time"), pw.trace(path):
            pass
    events = events_of(path)
    names = names_of(events)
    assert sorted(names.values()) == ["controller", "island0", "island1"]
    runs = sorted({e["args"]["run"] for e in events if e["ph"] == "b"})
    assert len(runs) == 2
    places = dict.fromkeys((name, island) for island, name, _ in launched(events))
    assert places.keys() == {("double", "island0"), ("square", "island1")}
    expected = [("island0", "double", run) for run in runs for _ in range(2 * 2)]  # calls, devices
    assert launched(events) == sorted([*expected, *(("island1", "square", run) for run in runs for _ in range(2))])
    threads = {(names[e["pid"]], e["args"]["name"].split("#")[0]) for e in events if e["name"] == "thread_name"}
    assert {("island0", "enqueuing"), ("island1", "enqueuing"), ("controller", "runs of tracer")} <= threads


def test_transfer_arrows_connect_two_islands_and_point_forward_in_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    both(X)[1].block_until_ready()
    with pw.trace(path):
        both(X)[1].block_until_ready()
    events = events_of(path)
    starts, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
    assert len(starts) == 2 and starts.keys() == ends.keys()
    for name, start in starts.items():
        assert start["pid"] != ends[name]["pid"] and start["ts"] < ends[name]["ts"]
    spans = [e for e in events if e["ph"] == "X" and "line" in e["args"]]
    (begun,) = (e["ts"] for e in events if e["ph"] == "b" and e["name"].endswith("enqueues"))
    (over,) = (e["ts"] for e in events if e["ph"] == "e" and e["name"].endswith("on devices"))
    assert all(begun < e["ts"] < over for e in spans)
    assert {e["name"] for e in events if e["ph"] == "X" and e["name"].startswith("receive")} == {
        "receive to island0", "receive to island1",
    }  # fmt: skip


def test_a_note_names_the_host_that_is_killed_during_a_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    both(X)[1].block_until_ready()
    host = this_cluster().hosts["island1"]
    with pw.trace(path):
        both(X)[1].block_until_ready()
        send("island1", signal.SIGKILL)
        assert becomes(lambda: host.lost is not None)
        both(X)[1].block_until_ready()  # on the restarted host
    assert "note: the trace has no events of island1: the host of island1 is lost" in capfd.readouterr().err
    assert {island for island, _, _ in launched(events_of(path))} == {"island0"}


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_trace_started_while_a_host_restarts_includes_the_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    host = this_cluster().hosts["island0"]
    send("island0", signal.SIGKILL)
    assert becomes(lambda: host.lost is not None)
    with pw.trace(path):
        both(X)[1].block_until_ready()
    assert {island for island, _, _ in launched(events_of(path))} == {"island0", "island1"}
    assert "lacks" not in capfd.readouterr().err


def test_a_trace_and_an_injected_delay_work_together(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with pw.trace(path), pw.testing.fault("delay", computation="square", seconds=0.2):
        both(X)[1].block_until_ready()
    assert len(launched(events_of(path))) == 6


@pytest.mark.long("a cluster is started for it: 8 s")
def test_pwc_run_records_a_trace_of_a_cluster(tmp_path: Path, embedded: Process) -> None:
    plan, path = str(tmp_path / "plan.bin"), tmp_path / "trace.json"
    with inside_of(embedded):
        both.lower(X).compile(TOPOLOGY).save(plan)
        code, _, stderr = pwc_here("run", plan, "--cluster", TOPOLOGY, "--repeat", "3", "--trace", str(path))
    assert code == 0, stderr
    assert len(launched(events_of(path))) == 3 * 6
    with inside_of(embedded):
        code, _, stderr = pwc_here("run", plan, "--cluster", TOPOLOGY, "--trace", str(tmp_path / "no" / "f"))
    assert code == 2 and "PWC0606" in stderr


def status_of(island: str) -> IslandStatus:
    return next(shown for shown in pw.status().islands if shown.name == island)


def test_the_status_shows_running_and_waiting_programs_and_held_bytes() -> None:
    """A frozen host keeps its runs in the status, as running or waiting."""

    def held() -> dict[str, dict[str, int]]:
        found = {island: dict(status_of(island).held) for island in ("island0", "island1")}
        return {island: {label.split("#")[0]: size for label, size in of.items()} for island, of in found.items()}

    def hold(program: Any) -> tuple[Any, dict[str, dict[str, int]]]:
        before = held()
        with pw.Client("alice"):
            kept = program(X)
            values(kept)
            found = held()
        return kept, {i: {k: v - before[i].get(k, 0) for k, v in of.items()} for i, of in found.items()}

    _, got = hold(both)
    assert {island: held["alice"] for island, held in got.items()} == {"island0": 32, "island1": 32}
    assert not any(island.running or island.waiting for island in pw.status().islands)
    send("island0", signal.SIGSTOP)
    with pw.Client("carol"), ThreadPoolExecutor(1) as pool:
        results = [both(X) for _ in range(5)]

        def from_bob() -> Any:
            with pw.Client("bob"):
                return values(both(X))

        late = pool.submit(from_bob)
        try:
            assert becomes(lambda: len(status_of("island0").waiting) == 1)
            for island in ("island0", "island1"):
                shown = status_of(island)
                assert [(c.split("#")[0], p) for c, p in shown.running] == [("carol", "both")] * 5 and not shown.lost
                ((client, program),) = shown.waiting
                assert client.startswith("bob") and program == "both" and "waiting  both of bob" in str(pw.status())
        finally:
            send("island0", signal.SIGCONT)
        for result in (*results, late.result()):
            np.testing.assert_array_equal(values(result)[1], values(results[0])[1])
    assert becomes(lambda: not any(island.running or island.waiting for island in pw.status().islands))


def test_the_status_shows_the_devices_of_a_lost_host() -> None:
    host = this_cluster().hosts["island1"]
    killed = send("island1", signal.SIGKILL)
    assert becomes(lambda: host.lost is not None)
    seen = status_of("island1").lost
    assert status_of("island0").lost == ()
    assert seen == (0, 1) or pid_of("island1") != killed  # already restarted
    assert this_cluster().host("island1").lost is None
    assert status_of("island1").lost == ()


def test_costs_equal_those_of_one_process(embedded: Process) -> None:
    with inside_of(embedded):
        want = both.lower(X).compile(TOPOLOGY)
    got = both.lower(X).compile()
    assert got.cost_analysis()["flops"] > 0
    for island in (None, "island0", "island1"):
        assert got.cost_analysis(island) == want.cost_analysis(island)
        assert got.memory_analysis(island) == want.memory_analysis(island)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_costs_are_available_from_a_restarted_host() -> None:
    want = both.lower(X).compile().cost_analysis()
    compiled = both.lower(X).compile()
    host = this_cluster().hosts["island0"]
    send("island0", signal.SIGKILL)
    assert becomes(lambda: host.lost is not None)
    assert compiled.cost_analysis() == want


log = jit(lambda x: jax.numpy.log(x), in_shardings=THERE, out_shardings=THERE)
huge = jit(lambda x: x * 1e30 * 1e30, in_shardings=HERE, out_shardings=HERE)


def logs(x: Any) -> Any:
    return f(log(f(x))), f(x)


def many(x: Any) -> Any:
    """Produces NaN on both islands, in independent computations."""
    return log(f(-x)), jax.numpy.sqrt(f(x) - 1000), f(log(f(-x)))


def infinite(x: Any) -> Any:
    return g(huge(x))


@pytest.mark.long("more numbers of the same kind", keep=("*-many-*",))
@pytest.mark.parametrize("setting", [jax.debug_nans, jax.debug_infs])
@pytest.mark.parametrize("function", [logs, many, infinite])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_and_inf_checks_report_the_same_as_in_one_process(
    setting: Any, function: Any, sign: int, embedded: Process
) -> None:
    program = pw.program(function)

    def found(compiled: Any) -> Any:
        with setting(True):
            try:
                return [x.tobytes() for x in values(jax.tree.leaves(compiled(sign * X)))]
            except FloatingPointError as error:
                assert isinstance(error, pw.PathwaysError)
                # The name is island0(2) if other tests of this process made an island of another size.
                return error.code, re.sub(r"(island\d)\(\d\)", r"\1", str(error))

    with inside_of(embedded):
        want = found(program.lower(X).compile(TOPOLOGY))
    got = found(program.lower(X).compile())
    assert got == want
    if sign < 0 and setting is jax.debug_nans and function is logs:
        assert got[0] == "PWC0211" and "test_cluster_observed.py" in got[1] and "NaN in" in got[1]
    values(program(sign * X)[0])  # without the setting, NaN raises no error
    np.testing.assert_array_equal(values(both(X))[0], values(both(X))[0])


def test_a_host_killed_during_a_nan_check_is_reported_as_lost() -> None:
    both(X)[1].block_until_ready()
    send("island1", signal.SIGSTOP)

    def kill() -> bool:
        runs = becomes(lambda: bool(status_of("island1").running))
        send("island1", signal.SIGKILL)
        return runs

    with jax.debug_nans(True), ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        result = both(X)
        assert killed.result() and code_of(np.asarray, result[0]) == "PWC0910"
        np.testing.assert_array_equal(values(both(X))[0], values(both(X))[0])
