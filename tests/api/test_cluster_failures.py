"""Tests hosts that are killed, crash or freeze: only their arrays are lost, and the hosts are restarted.

Also tests injected faults, and that hosts exit with their client.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import arrays_on_hosts, becomes, is_alive, is_replaced, pid_of, send, this_cluster, values
from support.codes import code_of
from support.processes import start_python
from support.two_islands import X, both, double, f, g, here, jit, there
from support.ways import WAYS, cluster_by

import pathways as pw
from pathways.runtime.control.health import TIMEOUT


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TIMEOUT, "5")
        patch.setenv("PATHWAYS_HANG_TIMEOUT", "3")
        with cluster_by(request.param, "islands=2,devices=2"):
            yield


def island_of(array: pw.Array) -> str:
    return array.handle.buffer.origin[1]


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("11",))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_a_lost_host_loses_only_its_arrays_and_is_restarted(how: signal.Signals) -> None:
    want = values(both(X))
    kept, taken = here(X), there(X)
    values((kept, taken))
    lost, old = island_of(taken), pid_of(island_of(taken))
    assert lost != island_of(kept)
    running = [both(X) for _ in range(5)]
    send(lost, how)
    running += [both(X) for _ in range(3)]
    codes = {code_of(np.asarray, result) for results in running for result in results}
    assert codes <= {"", "PWC0910"}  # runs that completed before the signal are valid
    assert becomes(lambda: is_replaced(lost, old))
    assert code_of(np.asarray, taken) == "PWC0910" and code_of(both, taken) in ("", "PWC0910")
    np.testing.assert_array_equal(np.asarray(kept), X * 2 + 1)
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not is_alive(old)


def test_results_on_other_islands_report_the_lost_host_as_the_cause() -> None:
    taken = there(X)
    values([taken])
    lost = island_of(taken)
    old = pid_of(lost)
    send(lost, signal.SIGKILL)
    assert becomes(lambda: is_replaced(lost, old))
    after = pw.program(lambda y: f(g(y)))(taken)
    with pytest.raises(pw.PathwaysError, match=f"the host of {lost} is lost"):
        np.asarray(after)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("target",))
@pytest.mark.parametrize("end", ["source", "target"])
def test_runs_succeed_again_after_a_host_dies_during_a_transfer(end: str) -> None:
    many = pw.program(lambda xs: [g(f(x)) for x in xs])
    xs = [np.ones((1024, 1024), np.float32)] * 6
    want = values(many(xs))
    source, target = island_of(here(X)), island_of(there(X))
    lost = source if end == "source" else target
    old = pid_of(lost)
    results = many(xs)
    send(lost, signal.SIGKILL)
    for ours, theirs in zip(results, want, strict=True):
        code = code_of(lambda ours=ours, theirs=theirs: np.testing.assert_array_equal(np.asarray(ours), theirs))
        assert code in ("", "PWC0910", "PWC0504"), code
    assert becomes(lambda: is_replaced(lost, old))
    for ours, theirs in zip(values(many(xs)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_hang_report_names_the_computation_and_later_runs_succeed() -> None:
    want = values(both(X))
    taken = there(X)
    values([taken])
    kept = here(X)
    values([kept])
    with pw.testing.fault("hang", computation="double", device=1) as fault:
        results = both(X)
        for result in results:
            with pytest.raises(pw.PathwaysError, match=r"double.* was launched on") as caught:
                np.asarray(result)
            assert caught.value.code == "PWC0901"
    assert fault.happened == 1
    np.testing.assert_array_equal(np.asarray(taken), X @ X.T)
    assert code_of(np.asarray, kept) == "PWC0901"
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_failed_computation_fails_its_dependents_on_every_island() -> None:
    good = here(X)
    with pw.testing.fault("raise", computation="square", device=1, message="on purpose") as fault:
        x, y = both(X)
        for result in (x, y):
            with pytest.raises(pw.PathwaysError, match=r"square.* failed on island") as caught:
                np.asarray(result)
            assert caught.value.code == "PWC0504" and "on purpose" in str(caught.value)
            assert caught.value.diagnostic.where is not None and "two_islands" in str(caught.value)
    assert fault.happened == 1
    np.testing.assert_array_equal(np.asarray(good), X * 2 + 1)


def test_an_injected_delay_does_not_change_results() -> None:
    want = values(both(X))
    with pw.testing.fault("delay", computation="double", device=1, seconds=0.3, times=2) as fault:
        for ours, theirs in zip(values(both(X)), want, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert fault.happened == 2


def test_a_fault_happens_at_a_step_by_its_number() -> None:
    def run_with_fault(step: int) -> str:
        """Returns the code of the results, or that of a fault which no step has met."""
        try:
            with pw.testing.fault("raise", step=step):
                return code_of(values, both(X))
        except pw.PathwaysError as error:
            return error.code

    codes = [run_with_fault(step) for step in range(12)]
    assert set(codes) == {"PWC0504", "PWC0104"}  # only some numbers are those of computations
    assert codes.count("PWC0504") >= 6  # two computations in each turn of its loop


def test_faults_that_a_cluster_does_not_support_are_refused() -> None:
    def use(kind: str, **conditions: Any) -> None:
        with pw.testing.fault(kind, **conditions):
            both(X)

    assert code_of(lambda: use("raise")) == code_of(lambda: use("lose", client="main")) == "PWC0912"
    assert code_of(lambda: use("raise", computation="no such")) == "PWC0104"


def test_a_fault_meets_only_the_client_that_it_names() -> None:
    alice = pw.Client("alice")
    label = alice._state.label  # pyright: ignore[reportPrivateUsage]
    with pw.testing.fault("raise", computation="double", client=label) as fault:
        assert code_of(values, both(X)) == ""
        with alice:
            assert code_of(values, both(X)) == "PWC0504"
    assert fault.happened == 1


def test_a_lost_device_takes_its_island_and_later_runs_succeed(request: pytest.FixtureRequest) -> None:
    want = values(both(X))
    kept, taken = here(X), there(X)
    values((kept, taken))
    old = pid_of(island_of(kept))

    def lose() -> str:
        with pw.testing.fault("lose", computation="double", message="on purpose") as fault:
            codes = {code_of(np.asarray, result) for result in both(X)}
        assert fault.happened == 1
        return "".join(codes)

    if "shared" in request.node.name:
        assert code_of(lose) == "PWC0912"
        return
    assert lose() == "PWC0512"
    assert becomes(lambda: is_replaced(island_of(kept), old))
    assert code_of(np.asarray, kept) == "PWC0512"
    np.testing.assert_array_equal(np.asarray(taken), X @ X.T)
    for ours, theirs in zip(values(both(X)), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_training_resumes_from_the_state_that_the_client_holds() -> None:
    step = pw.program(lambda w, x: (w + 0 * f(x) + f(g(x)) / 1000, g(x).sum()), donate_argnums=0)
    want = np.zeros((4, 4), np.float32)
    for _ in range(24):
        w, _ = step(want, X)
        want = np.asarray(w)
    saved = now = np.zeros((4, 4), np.float32)
    done, lost = 0, 0
    while done < 24:
        try:
            if done % 8 == 5 and lost <= done // 8:
                lost += 1
                send(("island0", "island1")[lost % 2], signal.SIGKILL)
            now, _ = step(now, X)
            saved = np.asarray(now)
            done += 1
        except pw.PathwaysError as error:
            assert error.code == "PWC0910", error
            now = saved
    assert lost == 3
    np.testing.assert_array_equal(saved, want)
    del now
    assert becomes(lambda: arrays_on_hosts() <= 2)


def test_every_call_fails_while_a_lost_host_cannot_be_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pw.cluster(islands=1, devices=1):
        one = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
        program = pw.program(lambda x: jit(double, in_shardings=one)(x))
        values([program(X)])
        monkeypatch.setattr(subprocess, "Popen", _refuse_to_start)
        send("island0", signal.SIGKILL)
        assert becomes(lambda: this_cluster().hosts["island0"].lost is not None)
        assert [code_of(program, X) for _ in range(3)] == ["PWC0910"] * 3


def _refuse_to_start(*_: Any, **__: Any) -> Any:
    raise OSError("no more processes")


CLIENT = """
import os, sys
import numpy as np, jax
import pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
from pathways.api.process import process
s = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
f = pw.program(lambda x: jax.jit(lambda v: v + 1, in_shardings=s)(x))
with pw.cluster(islands=2, devices=1):
    assert np.asarray(f(np.ones(3, np.float32)))[0] == 2
    print(*(h["pid"] for i in process().machine.ask("status")["islands"] for h in i["hosts"]), flush=True)
    {ending}
"""


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("pass-0", "*--9"))
@pytest.mark.parametrize(
    ("ending", "returned"),
    [("sys.stdin.read()", -signal.SIGKILL), ("os._exit(7)", 7), ("raise KeyError", 1), ("pass", 0), ("sys.exit(5)", 5)],
)
def test_hosts_exit_when_their_client_exits_or_is_killed(ending: str, returned: int) -> None:
    client = start_python("-c", CLIENT.replace("{ending}", ending))
    assert client.stdout is not None and client.stderr is not None
    line = client.stdout.readline()
    pids = [int(pid) for pid in line.split()]
    if returned == -signal.SIGKILL:
        client.kill()
    _, stderr = client.communicate(timeout=60)
    assert client.returncode == returned and len(pids) == 2, stderr
    assert becomes(lambda: not any(is_alive(pid) for pid in pids))
    assert os.getpid() not in pids
