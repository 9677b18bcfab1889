"""Tests hosts that die at the worst moments: between two messages of a run, while loading, while others start.

Each test prints the error codes that it saw, and how long it took.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import (
    PATIENCE,
    becomes,
    host_pids,
    is_alive,
    is_replaced,
    own_cluster,
    pid_of,
    send,
    this_cluster,
    values,
)
from support.codes import code_of
from support.proc import children_of
from support.ways import WAYS, cluster_by

import pathways as pw
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.control.health import TIMEOUT
from pathways.runtime.control.member import Member
from pathways.runtime.launch import local_hosts
from pathways.runtime.wire import messages as m

jit: Any = jax.jit
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
SLICES = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
f, g = (jit(lambda x: x * 2 + 1, in_shardings=s, out_shardings=s) for s in (HERE, THERE))
WANT = (8 * X + 7, 4 * X + 3)


@pw.program
def both(x: Any) -> Any:
    """Runs on the first island, the second, and the first again, so that each island waits for the other."""
    x = f(x)
    y = g(x)
    return f(y), y


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TIMEOUT, "5")
        with cluster_by(request.param, "islands=2,devices=2"):
            assert_right(both(X))
            yield


def assert_right(results: Any) -> None:
    for ours, want in zip(values(results), WANT, strict=True):
        np.testing.assert_array_equal(ours, want)


def is_noticed(old: dict[str, int]) -> bool:
    """Whether this process knows that the hosts of these processes are lost: a call before that may use them."""
    return all(pid_of(i) != pid or this_cluster().hosts[i].lost is not None for i, pid in old.items())


def report(what: str, begun: float, codes: Any = ()) -> None:
    """Prints what happened, the seconds since `begun`, and the error codes."""
    print(f"\n{what}: {time.monotonic() - begun:.2f} s, {sorted(set(codes)) or 'no error'}", end="")


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("the second",))
@pytest.mark.parametrize("lost", [0, 1], ids=["the first", "the second"])
def test_a_run_fails_when_a_host_is_lost_between_its_two_messages(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first host has received its part of a run. One host dies before the second receives its part."""
    own_cluster()
    send_frames, begun, hosts, pids = Member.send, time.monotonic(), list[str](), host_pids()
    assert_right(both(X))  # the hosts have the plan: what comes next is the run

    def send_and_kill(self: Member, data: bytes) -> None:
        if len(hosts) == 1:
            os.kill(pids[(hosts[0], self.name)[lost]], signal.SIGKILL)
        hosts.append(self.name)
        send_frames(self, data)

    monkeypatch.setattr(Member, "send", send_and_kill)
    results = both(X)
    monkeypatch.undo()
    codes = [code_of(lambda r=r: r.block_until_ready()) for r in results]
    report("lost between two messages", begun, codes)
    assert set(codes) <= {"", "PWC0910"} and "PWC0910" in codes and len(hosts) == 2
    assert_right(both(X))


def kill_on_message(message: type, island: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Kills the host of `island` the first time it is sent such a message; returns a list that then has its pid."""
    post, killed = RemoteHost.post, list[int]()

    def post_and_kill(self: RemoteHost, sent: m.Message) -> None:
        if isinstance(sent, message) and self.name == island and not killed:
            killed.append(pid_of(island))
            send(island, signal.SIGSTOP)  # so that it cannot answer before it is killed
            post(self, sent)
            send(island, signal.SIGKILL)
        else:
            post(self, sent)

    monkeypatch.setattr(RemoteHost, "post", post_and_kill)
    return killed


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("island1",))
@pytest.mark.parametrize("island", ["island0", "island1"])
def test_a_host_killed_while_loading_a_plan_fails_the_call_and_is_replaced(
    island: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    killed = kill_on_message(m.LoadPlan, island, monkeypatch)
    again = pw.program(lambda x: both(x))
    code = code_of(lambda: values(again(X)))  # a run that is enqueued later fails where its results are read
    assert len(killed) == 1 and becomes(lambda: is_replaced(island, killed[0]))
    assert_right(again(X))
    report("lost while it loads, first", begun, [code])
    begun, old = time.monotonic(), pid_of(island)
    send(island, signal.SIGKILL)
    assert becomes(lambda: is_replaced(island, old))
    killed.clear()
    loaded = code_of(lambda: values(again(X)))
    assert len(killed) == 1 and becomes(lambda: is_replaced(island, killed[0]))
    assert_right(again(X))
    report("lost while it loads again", begun, [loaded])
    assert code == loaded == "PWC0910"


def enqueue_runs() -> list[Any]:
    return [result for _ in range(20) for result in both(X)]


def codes_of(results: list[Any]) -> set[str]:
    return {code_of(lambda r=r: r.block_until_ready()) for r in results}


def test_all_hosts_are_replaced_when_killed_at_once() -> None:
    begun, old = time.monotonic(), {i: pid_of(i) for i in host_pids()}
    results = enqueue_runs()
    for island in old:
        send(island, signal.SIGKILL)
    codes = codes_of(results)
    seen = time.monotonic() - begun
    assert becomes(lambda: is_noticed(old))
    assert_right(both(X))
    report(f"all lost at once, known after {seen:.2f} s, right again after", begun, codes)
    assert codes <= {"", "PWC0910"} and all(is_replaced(i, pid) and not is_alive(pid) for i, pid in old.items())


def test_a_host_killed_while_another_host_starts_is_replaced() -> None:
    begun, old = time.monotonic(), {i: pid_of(i) for i in host_pids()}
    send("island0", signal.SIGKILL)
    assert becomes(lambda: this_cluster().hosts["island0"].lost is not None)
    send("island1", signal.SIGKILL)
    assert becomes(lambda: is_noticed(old))
    assert_right(both(X))
    report("lost while another starts, right again after", begun)
    assert all(is_replaced(i, pid) and not is_alive(pid) for i, pid in old.items())


def test_a_host_killed_while_it_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    own_cluster()
    begun, old = time.monotonic(), pid_of("island0")
    started: list[int] = []
    spawn = local_hosts.spawn

    def kill_the_first(*args: Any, **named: Any) -> Any:
        process = spawn(*args, **named)
        started.append(process.pid)
        if len(started) == 1:
            process.send_signal(signal.SIGKILL)
        return process

    monkeypatch.setattr(local_hosts, "spawn", kill_the_first)
    send("island0", signal.SIGKILL)
    assert becomes(lambda: len(started) > 1)
    assert_right(both(X))
    report("lost while it starts, right again after", begun)
    assert is_replaced("island0", old) and pid_of("island0") == started[1]


def test_other_islands_run_while_a_host_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for a starting host does not block the runs of other islands.

    Where the controller is in this process, the host is stopped until the other island has run.
    """
    held: list[Any] = []
    spawn = local_hosts.spawn

    def stop_the_first(*args: Any, **named: Any) -> Any:
        process = spawn(*args, **named)
        if not held:
            process.send_signal(signal.SIGSTOP)
            held.append(process)
        return process

    monkeypatch.setattr(local_hosts, "spawn", stop_the_first)
    alone = pw.program(lambda x: g(x))
    np.asarray(alone(X))
    island = alone(X).handle.buffer.origin[1]
    lost = next(i for i in host_pids() if i != island)
    begun, old, done = time.monotonic(), pid_of(lost), threading.Event()
    send(lost, signal.SIGKILL)
    assert becomes(lambda: this_cluster().hosts[lost].lost is not None)

    def work() -> None:
        assert_right(both(X))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not isinstance(this_cluster(), Cluster) or becomes(lambda: bool(held))
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(alone(X)), X * 2 + 1)
    assert not (held and done.is_set())
    for process in held:
        process.send_signal(signal.SIGCONT)
    assert done.wait(PATIENCE)
    thread.join()
    report("5 calls during a run that waits for a host, right after", begun)
    assert is_replaced(lost, old)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_two_of_three_hosts_are_replaced_and_reconnected() -> None:
    """The remaining host connects to both new hosts in either order, and the new hosts connect to each other."""
    slices = pw.make_virtual_device_set()
    places = [NamedSharding(slices.add_slice(devices=2).mesh("x"), P("x")) for _ in range(3)]
    stages = [jit(lambda x: x * 2 + 1, in_shardings=s, out_shardings=s) for s in places]

    @pw.program
    def ring(x: Any) -> Any:
        for stage in (*stages, *stages[::-1]):
            x = stage(x)
        return x

    def at_once() -> bool:
        return True

    def is_known() -> bool:
        return this_cluster().hosts["island0"].lost is not None

    def is_starting() -> bool:
        return len(children_of(os.getpid()) - before) > 0

    with pw.cluster(islands=3, devices=2):
        want = np.asarray(ring(X))
        for moment in (at_once, is_known, is_starting):
            begun, old = time.monotonic(), {i: pid_of(i) for i in ("island0", "island2")}
            before = children_of(os.getpid())
            results = [ring(X) for _ in range(5)]
            send("island0", signal.SIGKILL)
            assert becomes(moment)
            send("island2", signal.SIGKILL)
            codes = codes_of(results)
            # One loss fails all runs, so the controller may not have noticed the other yet.
            assert becomes(lambda old=old: all(this_cluster().hosts[i].lost or pid_of(i) != old[i] for i in old))
            np.testing.assert_array_equal(np.asarray(ring(X)), want)
            report(f"two of three lost ({moment.__name__}), right again after", begun, codes)
            assert codes <= {"", "PWC0910"} and all(is_replaced(i, pid) for i, pid in old.items())
