"""Tests that a hang loses only its own devices, and that a busy device is not a hang."""

import threading
from pathlib import Path
from typing import Any

import pytest
from support.processes import pwc, run_python

import pathways as pw
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue, Gang, QueueLost
from pathways.runtime.host.observe.watchdog import Watchdog
from pathways.runtime.host.run.runs_in_flight import Flights

HANG = """
import os, threading
os.environ["PATHWAYS_HANG_TIMEOUT"] = "3"
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw
def total(x):
    return jax.lax.psum(x, "x")
devices = pw.make_virtual_device_set()
mesh = devices.add_slice(devices=4).mesh("x")
call = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P("x"), out_specs=P()))
after = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(devices.add_slice(devices=1).mesh("y"), P()))
program = pw.program(lambda x: (call(x), after(call(x))))  # the user's line
elsewhere = jax.jit(lambda x: x * 3, in_shardings=NamedSharding(devices.add_slice(devices=1).mesh("z"), P()))
other = pw.program(lambda x: elsewhere(x))
x = np.arange(8, dtype=np.float32)
held, _ = program(x)
held.block_until_ready()
"""


HANGING = (
    HANG
    + """
def say(*words):  # in one write: several threads print
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

ended, runs = threading.Event(), 0
def bob():
    global runs
    with pw.Client("bob"):
        while not ended.is_set():
            other(x).block_until_ready()
            runs += 1
beside = threading.Thread(target=bob)
beside.start()

def wait(name, array):
    try:
        array.block_until_ready()
        say(name, "done")
    except pw.PathwaysError as error:
        say(name, error.code, "total was launched on all 4 devices" in str(error))
    finally:
        say(name, "finally")

def many():
    for _ in range(100):
        last, _ = program(x)
    last.block_until_ready()

with pw.testing.fault("hang", computation="total", device=3):
    first, second = program(x)
waiting = [threading.Thread(target=wait, args=of) for of in (("first", first), ("second", second))]
for thread in waiting:
    thread.start()
for thread in waiting:
    thread.join()
wait("held", held)
before = runs
say(np.asarray(program(x)[1]), np.asarray(program(x)[0])[:1])
ended.set()
beside.join()
say("bob", runs > 0, pw.status().islands[0].lost)
say("hung", "its threads inside XLA stay until this process ends" in str(pw.status()))
many()
"""
)


def test_a_hang_loses_only_its_own_devices(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(HANGING)
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr
    # `second` reads one replica of the result that hangs. It is computed if the hang does not delay that replica.
    said = sorted(line for line in done.stdout.splitlines() if line not in ("second done", "second PWC0901 True"))
    finals = [f"{name} finally" for name in ("first", "held", "second")]
    codes = [f"{name} PWC0901 True" for name in ("first", "held")]
    assert said == sorted([*finals, *codes, "[13. 17.] [12.]", "bob True (0, 1, 2, 3)", "hung True"]), done.stdout
    for part in ("error[PWC0901]", "no progress for 3 s", "injected hang", "has not returned", "model.py:13"):
        assert part in done.stderr, done.stderr
    assert "is placed again" in done.stderr


class Stuck:
    """The token of executions that complete only when the test sets `over`."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def block_until_ready(self) -> None:
        self.over.wait()


class NotifyingSet(set[Any]):
    """A set that sets `added` when an element is added."""

    def __init__(self) -> None:
        super().__init__()
        self.added = threading.Event()

    def add(self, element: Any, /) -> None:
        super().add(element)
        self.added.set()


def test_losing_a_device_ends_waits_for_room_in_its_queue() -> None:
    queue, ends, token = DeviceQueue(), list[str](), Stuck()
    gang = Gang([queue])

    def fill() -> None:
        try:
            while True:
                if gang.admit():
                    gang.started((token, None))
        except QueueLost:
            ends.append("lost")

    thread = threading.Thread(target=fill)
    queue.waits = NotifyingSet()
    thread.start()
    assert queue.waits.added.wait(60)
    assert thread.is_alive() and queue.flying <= DeviceQueue().limit
    queue.lose()
    thread.join(60)
    with pytest.raises(QueueLost):
        gang.admit()
    assert ends == ["lost"]
    token.over.set()
    queue.recover()
    assert gang.admit() and queue.flying == 1


class Interrupted:
    """A small result. Each 1 in `times` makes one wait for a result raise KeyboardInterrupt, as Ctrl-C does."""

    def __init__(self, times: list[int]) -> None:
        self.times = times

    def is_deleted(self) -> bool:
        return False

    def block_until_ready(self) -> None:
        if self.times and self.times.pop():
            raise KeyboardInterrupt


def test_interrupted_waits_for_room_leak_no_room_in_the_queue() -> None:
    queue, times = DeviceQueue(), [1] * 5
    gang, interrupts = Gang([queue]), 0
    for _ in range(200):
        try:
            if gang.admit():
                gang.started((None, Interrupted(times)))
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 5
    assert queue.flying <= DeviceQueue().limit


@pytest.mark.long("limits of time run out: 6 to 13 s")
def test_a_broken_stderr_does_not_stop_the_watchdog(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    code = """
class Gone:
    def write(self, text):
        raise BrokenPipeError
    flush = write
import sys
with pw.testing.fault("hang", computation="total", device=3):
    first, _ = program(x)
    sys.stderr = Gone()
    try:
        first.block_until_ready()
    except pw.PathwaysError as error:
        print(error.code, flush=True)
sys.stderr = sys.__stderr__
"""
    script.write_text(HANG + code)
    done = run_python(str(script))
    assert (done.returncode, done.stdout) == (0, "PWC0901\n"), done.stderr


@pytest.mark.long("limits of time run out: 6 to 13 s")
def test_an_uncaught_hang_sets_the_exit_codes_of_scripts_and_pwc_run(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    callback = """
def forever(x):
    threading.Event().wait()
stuck = pw.program(
    lambda x: jax.pure_callback(forever, jax.ShapeDtypeStruct(x.shape, x.dtype), call(x)), example_args=(x,)
)
if __name__ == "__main__":
    np.asarray(stuck(x))
"""
    script.write_text(HANG.replace("held, _ = program(x)\nheld.block_until_ready()", "") + callback)
    done = run_python(str(script))
    assert done.returncode == 1 and "PWC0901" in done.stderr, done.stderr
    done = pwc("run", f"{script}:stuck")
    assert done.returncode == 4 and "forever" not in done.stdout and "PWC0901" in done.stderr, done.stderr


BUSY = (
    HANG
    + """
long = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, c: jnp.tanh(c @ c * 0.01), x),
               in_shardings=NamedSharding(devices.add_slice(devices=1).mesh("l"), P()))
busy = pw.program(lambda x, n: long(x, n))
x = np.ones((200, 200), np.float32)
begin = time.monotonic()
busy(x, np.int32(100)).block_until_ready()
begin = time.monotonic()
busy(x, np.int32(100)).block_until_ready()
turns = int(100 * 1.5 / (time.monotonic() - begin))
busy(x, np.int32(turns)).block_until_ready()
print("done")
"""
)


def test_a_busy_device_is_not_a_hang(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        BUSY.replace("import os,", "import os, time,")
        .replace("import jax,", "import jax.numpy as jnp, jax,")
        .replace('"3"', '"0.3"')
    )
    done = run_python(str(script))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "PWC0901" not in done.stderr


@pytest.mark.parametrize("value", ["soon", "-1"])
def test_an_invalid_hang_timeout_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", value)
    with pytest.raises(pw.PathwaysError, match="PATHWAYS_HANG_TIMEOUT has an invalid value") as caught:
        Watchdog(Flights(), True, lambda _hang, _lost: None)
    assert caught.value.code == "PWC0707" and value in str(caught.value)
