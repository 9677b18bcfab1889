"""Tests loops and branches on data whose computations run on islands in several processes.

One host computes each predicate, and the controller sends the decision to all hosts of the run.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_alive, is_replaced, own_cluster, pid_of, send, values
from support.codes import code_of
from support.proc import memory_of
from support.ways import WAYS, cluster_by

import pathways as pw
from pathways.api.process import process
from pathways.dialect.plan.order import Joined, linearize
from pathways.runtime.control.member import Rank

jit: Any = jax.jit
X = np.arange(1.0, 17.0, dtype=np.float32).reshape(4, 4)
SLICES = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))


def double(x: Any) -> Any:
    return x * 2


def add_transpose(x: Any) -> Any:
    return x + x.T


def is_small(x: Any) -> Any:
    return x.sum() < 1e6


f = jit(double, in_shardings=HERE, out_shardings=HERE)
g = jit(add_transpose, in_shardings=THERE, out_shardings=THERE)
small = jit(is_small, in_shardings=THERE)


@pw.program
def loop(x: Any) -> Any:
    return lax.while_loop(small, lambda v: f(g(v)), x)


@pw.program
def choice(x: Any) -> Any:
    return lax.cond(small(x), lambda v: (f(g(v)), g(v)), lambda v: (g(f(v)), f(v)), x)


def plain_loop(x: Any) -> Any:
    while x.sum() < 1e6:
        x = (x + x.T) * 2
    return x


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HANG_TIMEOUT", "3")
        with cluster_by(request.param, "islands=2,devices=2"):
            yield


def test_a_loop_over_two_hosts_gives_the_plain_result() -> None:
    compiled = loop.lower(X).compile()
    joined = [what for _, what in linearize(compiled.plan) if isinstance(what, Joined)]
    assert [len(j.parts) for j in joined] == [2]
    np.testing.assert_array_equal(np.asarray(compiled(X)), plain_loop(X))
    np.testing.assert_array_equal(np.asarray(compiled(1e6 * X)), 1e6 * X)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_conditional_over_two_hosts_gives_the_plain_result(scale: float) -> None:
    x = np.float32(scale) * X
    want = ((x + x.T) * 2, x + x.T) if scale == 1 else ((x * 2) + (x * 2).T, x * 2)
    for ours, theirs in zip(values(choice(x)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nested_and_parallel_loops_give_the_same_results_in_every_run() -> None:
    @pw.program
    def nested(x: Any) -> Any:
        def outer(state: Any) -> Any:
            n, v = state
            grown = lax.while_loop(lambda w: small(w / 100), lambda w: f(g(w)), v)
            return n + 1, grown / 1e7

        _, a = lax.while_loop(lambda s: s[0] < 3, outer, (jnp.int32(0), x))
        return a, lax.while_loop(small, lambda v: g(f(v)), x)

    want = values(nested(X))
    for _ in range(3):
        for ours, theirs in zip(values(nested(X)), want, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert np.isfinite(want[0]).all() and want[1].sum() >= 1e6


def test_runs_of_several_clients_do_not_mix() -> None:
    with pw.Client("alice") as alice, pw.Client("bob") as bob:
        both = (alice, bob)
        results = [both[n % 2].submit(lambda x: np.asarray(loop(x)), np.float32(n + 1) * X) for n in range(6)]
        for number, result in enumerate(results):
            np.testing.assert_array_equal(result.result(), plain_loop(np.float32(number + 1) * X))


def test_the_controller_sends_each_decision_once_to_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    own_cluster()
    np.asarray(loop(X))
    posted: Counter[str] = Counter()
    post = Rank.post
    monkeypatch.setattr(Rank, "post", lambda rank, m: (posted.update([type(m).__name__]), post(rank, m))[1])
    result = loop(X)
    result.block_until_ready()
    turns, x = 1, X
    while x.sum() < 1e6:
        x, turns = (x + x.T) * 2, turns + 1
    assert posted["Decided"] == 2 * turns


def test_a_failing_predicate_fails_the_results_of_its_loop_or_branch() -> None:
    kept = pw.program(lambda x: f(x))(X)
    with pw.testing.fault("raise", computation="is_small", times=2):
        for result in (loop(X), *choice(X)):
            with pytest.raises(pw.PathwaysError, match="is_small") as caught:
                np.asarray(result)
            assert caught.value.code == "PWC0504"
    np.testing.assert_array_equal(np.asarray(kept), X * 2)
    np.testing.assert_array_equal(np.asarray(loop(X)), plain_loop(X))


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("9-1",))
@pytest.mark.parametrize(("how", "which"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGSTOP, 1)])
def test_a_loop_fails_when_one_of_its_hosts_is_lost(
    which: int, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = pw.program(lambda x: lax.while_loop(small, lambda v: g(f(v)) / 4, x))  # never terminates
    np.asarray(loop(X))
    lost = f"island{which}"
    other, old = pid_of(f"island{1 - which}"), pid_of(lost)
    result = slow(X / 1e6)
    next_result = loop(X)
    send(lost, how)
    assert code_of(np.asarray, result) == "PWC0910"
    assert code_of(np.asarray, next_result) in ("", "PWC0910")
    assert becomes(lambda: is_replaced(lost, old))
    assert pid_of(f"island{1 - which}") == other
    np.testing.assert_array_equal(np.asarray(loop(X)), plain_loop(X))


def test_the_error_names_the_computation_that_hangs_in_a_loop() -> None:
    np.asarray(loop(X))
    with pw.testing.fault("hang", computation="double", device=1):
        with pytest.raises(pw.PathwaysError, match="double") as caught:
            np.asarray(loop(X))
        assert caught.value.code == "PWC0901"
    np.testing.assert_array_equal(np.asarray(loop(X)), plain_loop(X))


endless = pw.program(lambda x: lax.while_loop(small, lambda v: g(f(v)) / 4, x))


def alone(x: Any) -> Any:
    """Loops endlessly on one island, over two meshes of one device each."""
    one, other = (jit(double, in_shardings=s, out_shardings=s) for s in SINGLE)
    return lax.while_loop(lambda v: v.sum() < 1e30, lambda v: other(one(v)) / 4, x)


SINGLE = [NamedSharding(SLICES.add_slice(devices=1, island="island0").mesh("x"), P()) for _ in range(2)]


def test_a_loop_on_one_island_has_one_branch_instruction() -> None:
    plan = pw.program(alone).lower(X).compile().plan
    assert [len(what.parts) for _, what in linearize(plan) if isinstance(what, Joined)] == [1]


@pytest.mark.parametrize("program", [endless, pw.program(alone)])
def test_an_endless_loop_can_be_cancelled(program: Any) -> None:
    np.asarray(loop(X))
    result = program(X / 1e6)
    after = pw.program(lambda x: f(x))(result)  # loaded while the loop runs
    with pytest.raises(TimeoutError):
        result.block_until_ready(timeout=0.05)
    assert result.cancel() and result.is_ready()
    for array in (result, after):
        with pytest.raises(pw.PathwaysError, match="was cancelled") as caught:
            np.asarray(array)
        assert caught.value.code == "PWC0518"
    assert becomes(lambda: not process().controller.flights.count)
    done = loop(X)
    np.testing.assert_array_equal(np.asarray(done), plain_loop(X))
    assert becomes(lambda: not process().controller.flights.count)  # waits for both hosts: the result needs only one
    assert not done.cancel()


def test_closing_a_client_cancels_its_loops() -> None:
    with pw.Client("brief"):
        endless(X / 1e6)
    assert becomes(lambda: not process().controller.flights.count)
    np.testing.assert_array_equal(np.asarray(loop(X)), plain_loop(X))


def test_closing_a_cluster_ends_hosts_that_run_endless_loops() -> None:
    with pw.cluster(islands=2, devices=2):
        endless(X / 1e6)
        pids = [pid_of(f"island{n}") for n in range(2)]
    assert not any(is_alive(pid) for pid in pids)


def test_a_cluster_closes_while_another_thread_starts_loops() -> None:
    """Calls that come when the block ends are refused."""
    begins, codes = threading.Event(), set[str]()
    with pw.cluster(islands=2, devices=2):
        np.asarray(loop(X))

        def work() -> None:
            for _ in range(3):
                codes.add(code_of(endless, X / 1e6))
                begins.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert begins.wait(60)
    thread.join(60)
    assert not thread.is_alive() and codes <= {"", "PWC0509"}


def test_a_loop_on_one_island_does_not_block_another_island() -> None:
    """While the loop runs, computed values are read, and the other island's host is killed, restarted and used."""
    kept = pw.program(lambda x: f(x))(X)
    there = pw.program(lambda x: pinned(x))
    values([kept, there(X)])
    old = pid_of("island1")
    result = pw.program(alone)(X / 1e6)
    np.testing.assert_array_equal(np.asarray(kept), 2 * X)
    send("island1", signal.SIGKILL)
    assert becomes(lambda: is_replaced("island1", old))
    np.testing.assert_array_equal(np.asarray(there(X)), 2 * X)
    assert not result.is_ready() and result.cancel()
    with pytest.raises(pw.PathwaysError, match="of alone was cancelled"):
        np.asarray(result)


ISLAND1 = NamedSharding(SLICES.add_slice(devices=1, island="island1").mesh("x"), P())
pinned = jit(double, in_shardings=ISLAND1, out_shardings=ISLAND1)


def test_a_ready_result_stays_readable_when_its_run_is_cancelled() -> None:
    both = pw.program(lambda x, y: (alone(x), pinned(y)))
    looped, done = both(X / 1e6, X)
    assert becomes(done.is_ready)
    assert done.cancel() and looped.is_ready()
    np.testing.assert_array_equal(np.asarray(done), 2 * X)
    assert code_of(np.asarray, looped) == "PWC0518"
    np.testing.assert_array_equal(np.asarray(loop(X)), plain_loop(X))


@pytest.mark.long("a slow host is waited for: 4 s")
@pytest.mark.usefixtures("freed_is_returned")
def test_a_fast_host_does_not_run_ahead_of_a_slow_host() -> None:
    """If it did, it would hold the unread values of 100 iterations, 4 MiB each."""
    turns, size = 100, 1024
    here = SINGLE[0]
    count = jit(lambda n: n + 1, in_shardings=here, out_shardings=here)
    is_unfinished = jit(lambda n: n < turns, in_shardings=here)
    make = jit(lambda n: jnp.full((size, size), n, jnp.float32), in_shardings=here, out_shardings=here)

    def product(v: Any, w: Any) -> Any:
        return w + v + jnp.tanh(jnp.tanh(v @ v) @ v) * 0

    slow = jit(product, in_shardings=ISLAND1, out_shardings=ISLAND1)

    @pw.program
    def work(n: Any, w: Any) -> Any:
        return lax.while_loop(lambda s: is_unfinished(s[0]), lambda s: (count(s[0]), slow(make(s[0]), s[1])), (n, w))

    zero = np.zeros((size, size), np.float32)
    values(work(np.int32(turns - 2), zero))
    pid = pid_of("island0")
    before = highest = memory_of(pid)
    number, result = work(np.int32(0), zero)
    while not result.is_ready():
        highest = max(highest, memory_of(pid))
    assert np.asarray(number) == turns and np.asarray(result)[0, 0] == sum(range(turns))
    assert highest < before + turns * zero.nbytes // 3
