"""Tests failures on a shared cluster: the errors that clients get, the results of other clients, and the cleanup.

Most failures are tested on islands of one host and on islands of two hosts. `pytest -s` prints how long it took until
the client noticed the failure.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_alive, pid_of, send
from support.codes import code_of
from support.proxies import Proxy
from support.shared import SharedCluster, controller_here, end_of, line_of, shared_cluster

import pathways as pw
from pathways.runtime.host.between.link import EAGER_LIMIT, Invitation
from pathways.runtime.wire import messages as m
from pathways.runtime.wire import peer
from pathways.runtime.wire.encoding import encode

jit: Any = jax.jit
KINDS = {"alone": "islands=3,devices=2", "two hosts": "islands=3,hosts=2,devices=1"}
SLICES = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(SLICES.add_slice(devices=2, island=f"island{n}").mesh("x"), P("x")) for n in range(2))
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
BIG = np.ones((1024, 2048), np.float32)


def first(x: Any) -> Any:
    return x - x.mean()


def second(x: Any) -> Any:
    return x + x.sum()


def slow(x: Any) -> Any:
    """Computes with collectives, for seconds if `x` has 9,216 numbers."""
    return jax.lax.fori_loop(0, 20_000, lambda _, v: jnp.tanh(v + v.mean()), x)


def slower(x: Any) -> Any:
    """Computes for so long that a signal reaches the host first, even on a busy machine."""
    return jax.lax.fori_loop(0, 200_000, lambda _, v: jnp.tanh(v + v.mean()), x)


f, g, long, longer = (
    jit(body, in_shardings=place, out_shardings=place)
    for body, place in ((first, HERE), (second, THERE), (slow, HERE), (slower, HERE))
)
here, there, both = pw.program(lambda x: f(x)), pw.program(lambda x: g(x)), pw.program(lambda x: g(f(x)))
busy, there_and_back = pw.program(lambda x: g(longer(x))), pw.program(lambda x: f(g(f(x))))
late = pw.program(lambda x: g(long(x)))


@dataclass
class Cell:
    """A shared cluster, and the number of hosts in each of its islands."""

    cluster: SharedCluster
    hosts: int

    def host(self, island: str, rank: int) -> str:
        return island if self.hosts == 1 else f"{island}/{rank % self.hosts}"


@pytest.fixture(scope="module", params=KINDS)
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "2")
        patch.setenv("PATHWAYS_HANG_TIMEOUT", "2")
        with shared_cluster(KINDS[request.param]) as made:
            yield Cell(made, 1 + (request.param == "two hosts"))


def assert_fails_within(what: str, bad: Callable[[], Any], code: str | tuple[str, ...], within: float) -> None:
    """Asserts that `bad` raises a PathwaysError with such a code within some seconds; prints how long it took."""
    begin = time.monotonic()
    assert code_of(bad) in ((code,) if isinstance(code, str) else code)
    seconds = time.monotonic() - begin
    print(f"\n{what}: {code} after {seconds * 1e3:.0f} ms")
    assert seconds < within


@pytest.fixture
def other(cell: Cell) -> Iterator[None]:
    """Runs a second client on a third island. Its results must be right, and the cluster empty at the end."""
    with cell.cluster.client("elsewhere") as process:
        assert line_of(process) == "ready"
        yield
        assert end_of(process, "\n") == ["0"]
    assert cell.cluster.is_empty()


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("alone-9-1",))
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_frozen_host_loses_only_its_own_arrays(
    cell: Cell, how: signal.Signals, rank: int, other: None
) -> None:
    with pw.connect(cell.cluster.address):
        want = np.asarray(both(X))
        lies, kept = here(X), there(X)
        before = [np.asarray(lies), np.asarray(kept)]
        pid, epoch = cell.cluster.hosts()[cell.host("island0", rank)], cell.cluster.island("island0")["epoch"]
        under_way = busy(X)
        os.kill(pid, how)
        assert_fails_within(f"{how.name} {cell.host('island0', rank)}", lambda: np.asarray(under_way), "PWC0910", 30)
        assert code_of(np.asarray, lies) == "PWC0910"
        np.testing.assert_array_equal(np.asarray(kept), before[1])
        np.testing.assert_allclose(np.asarray(both(X)), want, rtol=1e-6)
        found = cell.cluster.island("island0")
        assert (found["epoch"], found["state"]) == (epoch + 1, "up")
        assert cell.cluster.becomes(lambda _: not is_alive(pid))


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_hang_on_one_host_fails_the_run_and_later_runs_succeed(cell: Cell, rank: int, other: None) -> None:
    with pw.connect(cell.cluster.address):
        want, kept = np.asarray(both(X)), there(X)
        before = np.asarray(kept)
        with pw.testing.fault("hang", computation="first", device=rank):
            under_way = both(X)
            said = "PWC0901"
            if cell.hosts > 1:  # a host that hangs exits; of two hosts, either may be reported first
                said = "PWC0901", "PWC0910"
            assert_fails_within(f"hang of {cell.host('island0', rank)}", lambda: np.asarray(under_way), said, 60)
        np.testing.assert_array_equal(np.asarray(kept), before)
        np.testing.assert_allclose(np.asarray(both(X)), want, rtol=1e-6)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("alone",))
def test_an_error_on_one_device_fails_the_run_and_no_host_is_lost(cell: Cell, other: None) -> None:
    hosts = cell.cluster.hosts()
    with pw.connect(cell.cluster.address):
        want, lies = np.asarray(both(X)), here(X)
        before = np.asarray(lies)
        with pw.testing.fault("raise", computation="first", device=1):
            under_way = both(X)
            assert_fails_within("error on one device", lambda: np.asarray(under_way), "PWC0504", 30)
        np.testing.assert_array_equal(np.asarray(lies), before)
        np.testing.assert_allclose(np.asarray(both(X)), want, rtol=1e-6)
    assert cell.cluster.hosts() == hosts


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.parametrize("end", ["source", "target"])
def test_a_host_killed_during_a_transfer_fails_the_run(cell: Cell, end: str, other: None) -> None:
    """With two hosts in an island, the last is killed: the first still receives its values.

    Runs behind `late`, which computes for half a second, are in flight at the kill. The last run is submitted while the
    host is stopped, so that it cannot complete before.
    """
    victim = cell.host("island0" if end == "source" else "island1", 1)
    codes = set[str]()
    with pw.connect(cell.cluster.address):
        want = np.asarray(both(BIG))
        late(X).block_until_ready()
        for turns in (0, 1, 3):
            pid = cell.cluster.hosts()[victim]
            for value in [both(BIG) for _ in range(turns)]:
                value.block_until_ready()
            late(X)
            moved = [both(BIG) for _ in range(8)]
            os.kill(pid, signal.SIGSTOP)
            last = late(X)
            os.kill(pid, signal.SIGKILL)
            assert_fails_within(f"kill of the {end}, {victim}", lambda last=last: np.asarray(last), "PWC0910", 30)
            codes |= {code_of(np.asarray, value) for value in moved}
            np.testing.assert_allclose(np.asarray(both(BIG)), want, rtol=1e-5)
    assert "PWC0910" in codes <= {"", "PWC0910"}


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("alone",))
@pytest.mark.parametrize("kind", KINDS)
def test_killing_the_controller_fails_its_clients_and_ends_its_hosts(kind: str) -> None:
    with shared_cluster(KINDS[kind]) as cluster:
        pids = cluster.pids()
        with pw.connect(cluster.address):
            lies, under_way = here(X), busy(X)
            os.kill(cluster.pid, signal.SIGKILL)
            assert_fails_within("kill of the controller", lambda: np.asarray(under_way), "PWC0917", 5)
            assert code_of(np.asarray, lies) == code_of(both, X) == "PWC0917"
            assert becomes(lambda: not any(map(is_alive, pids)))


_PULLED_AT = re.compile(rb"(\d{19} )(127\.0\.0\.1:\d{5})")
"""Matches the message with the address of a transfer server: the number of its greeting, and the address."""


@contextmanager
def proxied(patch: pytest.MonkeyPatch) -> Generator[dict[str, Proxy]]:
    """Connects hosts to each other through proxies that a test can cut."""
    proxies: dict[str, Proxy] = {}
    one_at_a_time = threading.Lock()

    def encoded(message: m.Message) -> tuple[int, bytes, bytes]:
        if isinstance(message, m.Connect):
            changed = {name: through(said) if said else said for name, said in message.invitations.items()}
            message = m.Connect(message.request, changed)
        return encode(message)

    def through(invitation: str) -> str:
        found = Invitation.read(invitation)
        reached = replace(found.eager_address, address=proxied_at(found.eager_address.address, pulled_through), name="")
        return str(replace(found, eager_address=reached))

    def pulled_through(data: bytes) -> bytes:
        """Replaces the address of a transfer server in what passes, by one as long."""
        return _PULLED_AT.sub(lambda m: m[1] + proxied_at(m[2].decode()).encode(), data)

    def proxied_at(address: str, rewrite: Callable[[bytes], bytes] = bytes) -> str:
        with one_at_a_time:  # several threads send invitations, and one port of a host serves all others
            if address not in proxies:
                proxies[address] = Proxy(address, rewrite)
            assert len(proxies[address].address) == len(address)
            return proxies[address].address

    patch.setattr(peer, "encode", encoded)
    try:
        yield proxies
    finally:
        for proxy in proxies.values():
            proxy.close()


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("sent-alone-True",))
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sent", [True, False], ids=["sent", "pulled"])
def test_a_network_partition_between_islands_fails_runs_and_keeps_arrays(
    kind: str, shared: bool, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both islands still reach the controller. Runs that wait fail, and no host is lost."""
    monkeypatch.setenv("PATHWAYS_TRANSFER_TIMEOUT", "1")
    if not sent:
        monkeypatch.setenv(EAGER_LIMIT, "0")
    with proxied(monkeypatch) as proxies, ExitStack() as stack:
        if shared:
            stack.enter_context(pw.connect(stack.enter_context(controller_here(KINDS[kind]))))
        else:
            stack.enter_context(pw.cluster(KINDS[kind]))
        want, kept, lies = np.asarray(there_and_back(X)), there(X), here(X)
        before = np.asarray(kept), np.asarray(lies)
        for value in (both, there_and_back):
            for proxy in proxies.values():
                proxy.cut()
            under_way = value(X)
            assert_fails_within(f"partition of {kind}", lambda v=under_way: np.asarray(v), "PWC0924", 20)
            for proxy in proxies.values():
                proxy.mend()
            np.testing.assert_allclose(np.asarray(there_and_back(X)), want, rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(kept), before[0])
        np.testing.assert_array_equal(np.asarray(lies), before[1])


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_network_partition_between_restarted_hosts_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_TRANSFER_TIMEOUT", "1")
    with proxied(monkeypatch) as proxies, pw.cluster(KINDS["alone"]):
        want = np.asarray(both(X))
        for island in ("island0", "island1"):
            old = pid_of(island)
            send(island, signal.SIGKILL)
            assert becomes(lambda island=island, old=old: pid_of(island) != old)
        assert becomes(lambda: not code_of(lambda: np.asarray(both(X))))
        for proxy in proxies.values():
            proxy.cut()
        under_way = both(X)
        assert_fails_within("partition of restarted hosts", lambda: np.asarray(under_way), "PWC0924", 20)
        for proxy in proxies.values():
            proxy.mend()
        assert becomes(lambda: not code_of(lambda: np.asarray(both(X))))  # the first pull may use a cut connection
        np.testing.assert_array_equal(np.asarray(both(X)), want)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_the_transfer_timeout_excludes_the_time_to_compute_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_TRANSFER_TIMEOUT", "0.3")
    x = np.ones((96, 96), np.float32)
    with pw.cluster(KINDS["alone"]):
        assert not code_of(np.asarray, late(x))
        begin = time.monotonic()
        assert not code_of(np.asarray, late(x))  # compiled before
        assert time.monotonic() - begin > 0.6
