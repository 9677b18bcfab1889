"""Tests islands of several hosts, each in its own process: results equal those of one process.

Also tests the loss of one host of an island, and the NaN checks, traces and snapshots of such islands.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, host_pids, is_alive, launched, pid_of, post_to, this_cluster, values
from support.codes import code_of
from support.forked_python import processes_from_nothing
from support.processes import ROOT, load_file

import pathways as pw
from pathways.api import snapshots
from pathways.api.process import Process, inside_of, process
from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost

jit: Any = jax.jit
TOPOLOGY = "islands=2,hosts=2,devices=4"
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

SLICES = pw.make_virtual_device_set()
HERE = SLICES.add_slice(devices=8).mesh(("x", "y"), (4, 2))
THERE = SLICES.add_slice(devices=8).mesh(("x", "y"), (2, 4))
ON_ONE = SLICES.add_slice(devices=4).mesh(("x", "y"), (2, 2))
"""A mesh whose devices all belong to one host."""
SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("x", "y")), P(None, "x")]


@pytest.fixture(scope="module", autouse=True)
def embedded(thorough: bool) -> Iterator[Process]:
    """Starts the cluster. Yields the state that this process has without a cluster.

    With --all the hosts have hash seeds of their own: forked ones share one, and iterate sets alike.
    """
    outer = process()
    with processes_from_nothing(thorough), pw.cluster(TOPOLOGY):
        yield outer


def run_and_compare(outer: Process, program: Any, *arguments: Any, rtol: float = 0) -> Any:
    """Runs a program in this process and on the cluster; returns the cluster's results.

    Asserts equal results, up to `rtol` where hosts add in a different order.
    """
    with inside_of(outer):
        want = values(jax.tree.leaves(program.lower(*arguments).compile(TOPOLOGY)(*arguments)))
    got = program.lower(*arguments).compile()(*arguments)
    for ours, theirs in zip(values(jax.tree.leaves(got)), want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)
    return got


def on(mesh: Any, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def test_collectives_span_both_hosts_of_an_island(embedded: Process) -> None:
    rows, columns = on(HERE, "x", None), on(HERE, None, "y")
    f = jit(lambda a, b: a @ b - a.mean(), in_shardings=(rows, columns), out_shardings=on(HERE, "x", "y"))
    run_and_compare(embedded, pw.program(lambda a, b: (y := f(a, b), y.sum())), X, X.T.copy(), rtol=1e-6)


def test_sample_losses_match_plain_jax() -> None:
    losses = load_file(ROOT / "samples" / "mixture_of_experts.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)


@pytest.mark.long("more pairs of shardings of the same kind", keep=("0-*",))
@pytest.mark.parametrize("mesh", [THERE, ON_ONE])
@pytest.mark.parametrize(("source", "target"), list(product(range(0, len(SPECS), 3), range(1, len(SPECS), 3))))
def test_arrays_are_resharded_between_islands_of_several_hosts(
    source: int, target: int, mesh: Any, embedded: Process
) -> None:
    a, b = NamedSharding(HERE, SPECS[source]), NamedSharding(mesh, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    run_and_compare(embedded, pw.program(lambda v: first(second(first(v)))), X)


@pytest.mark.long("more pairs of shardings of the same kind", keep=("3-*",))
@pytest.mark.parametrize(("source", "target"), list(product(range(1, len(SPECS), 2), range(0, len(SPECS), 3))))
def test_arrays_are_resharded_between_hosts_of_one_island(source: int, target: int, embedded: Process) -> None:
    a, b = NamedSharding(HERE, SPECS[source]), NamedSharding(HERE, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    run_and_compare(embedded, pw.program(lambda v: first(second(first(v)))), X)


@pytest.mark.parametrize("mesh", [THERE, ON_ONE])
def test_loops_and_branches_on_data_equal_those_of_one_process(mesh: Any, embedded: Process) -> None:
    here, there, one = on(HERE, "x", None), on(mesh, None, "y"), on(mesh)
    f = jit(lambda v: v * 1.5 - v.mean(), in_shardings=here, out_shardings=here)
    g = jit(lambda v: v + 1, in_shardings=there, out_shardings=there)
    size = jit(lambda v: abs(v).sum() < 5000, in_shardings=there, out_shardings=one)

    def turn(v: Any) -> Any:
        return g(f(v))

    def program(v: Any) -> Any:
        v = lax.while_loop(size, turn, v)
        return lax.cond(v.sum() > 0, lambda w: f(w), lambda w: g(w), v), v

    run_and_compare(embedded, pw.program(program), X, rtol=1e-4)


def test_shards_on_all_hosts_of_an_island_can_be_read_individually() -> None:
    f = jit(lambda v: v + 1, in_shardings=on(HERE, "x", "y"), out_shardings=on(HERE, "x", "y"))
    x = pw.program(lambda v: f(v))(X)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(x)[shard.index])


def test_one_failed_shard_fails_the_result_and_no_host_hangs() -> None:
    """One host has an error instead of its shard. Reads on the other island fail, and no host is lost."""
    first, second = on(HERE, "x", None), on(THERE, "x", None)
    f = jit(lambda v: v + 1, in_shardings=first, out_shardings=first)
    g = jit(lambda v: v - v.sum(), in_shardings=second, out_shardings=second)
    make, both = pw.program(lambda v: (y := f(v), g(y))), pw.program(lambda v, w: (f(v), g(w)))
    good = values(make(X))
    made, _ = make(X)
    made.block_until_ready()
    array = made.handle.buffer.array
    cause = write_diagnostic(HostLost(island="another", reason="a test says so"))
    post_to(array.store.members[1].name, m.PutPoison(array.number, cause))
    before = host_pids()
    fine, bad = both(X, made)
    np.testing.assert_array_equal(np.asarray(fine), good[0])
    with pytest.raises(pw.PathwaysError, match="a test says so"):
        np.asarray(bad)
    np.testing.assert_allclose(values(make(X))[1], good[1], rtol=1e-6)
    assert host_pids() == before


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("0",))
@pytest.mark.parametrize("rank", [0, 1])
def test_all_hosts_of_an_island_are_replaced_when_one_is_killed(rank: int) -> None:
    first, second = on(HERE, "x", None), on(THERE, "x", None)
    f = jit(lambda v: v - v.mean(), in_shardings=first, out_shardings=first)
    g = jit(lambda v: v - v.sum(), in_shardings=second, out_shardings=second)
    both = pw.program(lambda v: (y := f(v), g(y)))
    lost, kept = both(X)
    want = values((lost, kept))
    island = this_cluster().named(lost.handle.buffer.devices[0].island)
    assert island is not None
    gone = this_cluster().hosts[island.name]
    before = host_pids()
    os.kill(before[f"{island.name}/{rank}"], signal.SIGKILL)
    assert becomes(lambda: gone.lost is not None)
    assert gone.lost is not None and f"{island.name}/{rank}" in str(pw.PathwaysError(gone.lost))
    assert code_of(np.asarray, lost) == "PWC0910"
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(kept), want[1])
    after = host_pids()
    assert {name for name in before if before[name] != after[name]} == {f"{island.name}/0", f"{island.name}/1"}
    assert not any(is_alive(before[f"{island.name}/{n}"]) for n in range(2))


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_an_island_is_replaced_when_its_group_service_is_killed() -> None:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    program = pw.program(lambda v: jit(lambda w: w - w.mean(), in_shardings=sharding, out_shardings=sharding)(v))
    with pw.cluster("islands=1,hosts=2,devices=1"):
        want, gone = values([program(X)]), this_cluster().hosts["island0"]
        meeting = launched("island0").meeting
        assert meeting is not None
        meeting.kill()
        assert becomes(lambda: gone.lost is not None)
        np.testing.assert_array_equal(values([program(X)]), want)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_hang_report_names_the_host_and_later_runs_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "1")

    def stage(v: Any) -> Any:
        return v - v.mean()

    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=4).mesh("x"), P("x"))
    program = pw.program(lambda v: jit(stage, in_shardings=sharding, out_shardings=sharding)(v))
    with pw.cluster("islands=1,hosts=2,devices=2"):
        program(X).block_until_ready()
        with pw.testing.fault("hang", computation="stage", device=3), pytest.raises(pw.PathwaysError) as caught:
            np.asarray(program(X))
        assert caught.value.code == "PWC0901"
        assert "island0/1: a host callback of stage (injected hang) has not returned" in str(caught.value)
        np.testing.assert_allclose(np.asarray(program(X)), X - X.mean(), rtol=1e-5, atol=1e-6)


def test_an_error_on_one_host_fails_the_run_and_later_runs_succeed() -> None:
    def stage(v: Any) -> Any:
        return v - v.mean()

    sharding = on(HERE, "x", None)
    program = pw.program(lambda v: jit(stage, in_shardings=sharding, out_shardings=sharding)(v))
    with pw.testing.fault("raise", computation="stage", device=6):
        assert code_of(np.asarray, program(X)) == "PWC0504"
    np.testing.assert_allclose(np.asarray(program(X)), X - X.mean(), rtol=1e-5, atol=1e-6)


def test_loading_different_plans_on_hosts_of_one_island_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request, seen = RemoteHost.request, list[str]()

    def other(self: RemoteHost, make: Any) -> Any:
        wait = request(self, make)

        def answer() -> m.Answer:
            said = wait()
            if len(said.value) == 64:  # a digest
                seen.append(self.name)
            is_changed = seen and self.name.endswith("/1")
            return msgspec.structs.replace(said, value=said.value[::-1]) if is_changed else said

        return answer

    monkeypatch.setattr(RemoteHost, "request", other)
    sharding = on(HERE, None, "x")
    program = pw.program(lambda v: jit(lambda w: w * 7, in_shardings=sharding, out_shardings=sharding)(v))
    with pytest.raises(pw.PathwaysError, match="has another part") as caught:
        program(X)
    assert caught.value.code == "PWC0921" and seen


def test_all_processes_of_an_island_of_several_hosts_exit() -> None:
    with pw.cluster("islands=1,hosts=2,devices=1"):
        found = launched("island0")
        assert found.meeting is not None
        pids = [*found.pids, found.meeting.process.pid]
        assert len(pids) == 3 and all(is_alive(pid) for pid in pids)
    assert not any(is_alive(pid) for pid in pids)


def test_a_nan_on_one_host_of_an_island_is_found() -> None:
    sharding = on(HERE, "x", None)

    def stage(v: Any) -> Any:
        return v / (v - v[-1, -1]) + v.mean()

    program = pw.program(lambda v: jit(stage, in_shardings=sharding, out_shardings=sharding)(v))
    x = np.arange(1, 129, dtype=np.float32).reshape(16, 8)
    x[-1, -1] = 0
    program(x).block_until_ready()
    with jax.debug_nans(True):
        assert code_of(program, x) == "PWC0211"
        program(x + 1)[0]
    assert np.isnan(np.asarray(program(x))).any()


def test_traces_and_costs_include_all_hosts_of_an_island(tmp_path: Path, embedded: Process) -> None:
    sharding = on(HERE, "x", None)
    f = jit(lambda v: v @ v.T - v.mean(), in_shardings=sharding, out_shardings=sharding)
    program = pw.program(lambda v: f(v))
    program(X).block_until_ready()
    with pw.trace(tmp_path / "trace.json"):
        program(X).block_until_ready()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and "tid" in e}
    worked = {threads[e["pid"], e["tid"]] for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in threads}
    assert {f"device {n}" for n in range(8) if n % 2 == 0} <= worked
    with inside_of(embedded):
        want = program.lower(X).compile(TOPOLOGY).cost_analysis()
    got = program.lower(X).compile().cost_analysis()
    assert got["flops"] == pytest.approx(want["flops"])


def test_several_threads_call_programs_at_once() -> None:
    """All hosts of an island must launch computations in the same order, or their collectives would deadlock."""
    first, second = on(HERE, "x", None), on(THERE, "x", None)
    f = jit(lambda v: v - v.mean(), in_shardings=first, out_shardings=first)
    g = jit(lambda v: v * 2 - v.sum() / 100, in_shardings=second, out_shardings=second)
    one, two = pw.program(lambda v: (g(f(v)), f(g(v)))), pw.program(lambda v: g(f(g(f(v)))))
    want = [values(one(X)), values([two(X)])]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(15):
            for program, expected in zip((one, two), want, strict=True):
                got = values(jax.tree.leaves(program(X)))
                if any((a != b).any() for a, b in zip(got, expected, strict=True)):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("1",))
@pytest.mark.parametrize("rank", [0, 1])
def test_a_loop_over_two_islands_fails_when_one_of_its_hosts_is_killed(rank: int) -> None:
    first, second = on(HERE, "x", None), on(THERE, "x", None)
    f = jit(lambda v: v - v.mean(), in_shardings=first, out_shardings=first)
    g = jit(lambda v: v + v.sum() * 0, in_shardings=second, out_shardings=second)
    small = jit(lambda v: abs(v).sum() < 1e30, in_shardings=second, out_shardings=on(THERE))
    endless = pw.program(lambda x: lax.while_loop(small, lambda v: g(f(v)), x))
    both = pw.program(lambda v: (y := f(v), g(y)))
    want = values(both(X))
    islands = [both(X)[n].handle.buffer.devices[0].island for n in range(2)]
    kept = pw.program(lambda v: f(v))(X)
    np.testing.assert_array_equal(np.asarray(kept), want[0])
    before = host_pids()
    result = endless(X)
    gone = this_cluster().hosts[islands[1]]
    os.kill(before[f"{islands[1]}/{rank}"], signal.SIGKILL)
    assert code_of(np.asarray, result) == "PWC0910" and gone.lost is not None
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    result = endless(X)
    assert result.cancel() and code_of(np.asarray, result) == "PWC0518"
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    after = host_pids()
    assert {name for name in before if before[name] != after[name]} == {f"{islands[1]}/0", f"{islands[1]}/1"}


def test_sequential_dispatch_donation_copies_and_suspension_work() -> None:
    first, second = on(HERE, "x", None), on(THERE, "x", None)
    f = jit(lambda v: v - v.mean(), in_shardings=first, out_shardings=first)
    g = jit(lambda v: v * 2 - v.sum(), in_shardings=second, out_shardings=second)
    both = pw.program(lambda v: (y := f(v), g(y)))
    want = values(both(X))
    for ours, theirs in zip(values(both.lower(X).compile(dispatch="sequential")(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    taking = pw.program(lambda v: f(v), donate_argnums=0)
    made, _ = both(X)
    kept = made.copy()
    taking(made).block_until_ready()
    np.testing.assert_array_equal(np.asarray(kept), want[0])
    assert code_of(np.asarray, made) == "PWC0207"
    with pw.Client("alice") as alice:
        held = both(X)
        assert alice.suspend() > 0
        alice.resume()
        for ours, theirs in zip(values(held), want, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("spec", [P("x"), P()])
def test_a_snapshot_of_an_island_of_several_hosts_is_restored(
    spec: P, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 0)
    on = NamedSharding(pw.make_virtual_device_set().add_slice(devices=4).mesh("x"), spec)
    double = pw.program(lambda x: jax.jit(lambda v: v * 2, in_shardings=on, out_shardings=on)(x))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    with pw.cluster("islands=1,hosts=2,devices=2"):
        made = double(x)
        pw.save(made, tmp_path / "s")
        back = pw.restore(made, tmp_path / "s")
        assert isinstance(back, pw.Array)
        np.testing.assert_array_equal(np.asarray(double(back)), x * 4)
    np.testing.assert_array_equal(np.asarray(pw.restore(x, tmp_path / "s")), x * 2)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_an_island_of_several_hosts_is_removed_and_added_again(embedded: Process) -> None:
    """All processes of the island exit. New hosts under its name are connected to the other island."""
    f, g = (jit(lambda x: x * 2 + x.sum(), in_shardings=on(mesh, "x", "y")) for mesh in (HERE, THERE))
    both = pw.program(lambda x: (y := f(x), g(y)))
    results = run_and_compare(embedded, both, X, rtol=1e-6)
    want, (goes,) = values(results), {r.handle.buffer.origin[1] for r in results} - {"island0"}
    old = [pid_of(f"{goes}/{rank}") for rank in range(2)]
    pw.remove_island(goes)
    assert not any(map(is_alive, old)) and code_of(np.asarray, results[1]) == "PWC0922"
    assert code_of(pw.add_island) == "PWC0912"  # only an island name from the start can have several hosts
    pw.add_island(pw.Island(goes, devices=4, hosts=2))
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.asarray(results[0]), want[0])
