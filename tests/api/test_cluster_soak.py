"""Tests long training during which hosts are killed: the losses stay the same, and nothing leaks."""

import gc
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import (
    arrays_on_hosts,
    becomes,
    host_pids,
    is_alive,
    is_replaced,
    pid_of,
    send,
    values,
)
from support.codes import code_of
from support.proc import children_of, listening, memory_of, open_files_of, ports_of, threads_of

import pathways as pw
from pathways.api.process import Process, inside_of, process

jit: Any = jax.jit
STEPS, STEPS_PER_KILL, STEPS_PER_COPY = 200, 20, 5
"""Training steps, steps per killed host, and steps per copy of the state to the client."""
FIRST_MEMORY_STEP = 60
"""The step after which memory is first measured."""
WIDTH, ROWS, MICROBATCHES = 64, 32, 4
MIB = 1 << 20
TOPOLOGY = "islands=2,devices=2"

pytestmark = pytest.mark.usefixtures("freed_is_returned")

SLICES = pw.make_virtual_device_set()
MESHES = [SLICES.add_slice(devices=2).mesh("x") for _ in range(2)]
STAGES = [
    jit(lambda w, x: jnp.tanh(x @ w), in_shardings=(NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))))
    for mesh in MESHES
]


def loss_of(weights: Any, x: Any, y: Any) -> Any:
    for stage, own in zip(STAGES, weights, strict=True):
        x = stage(own, x)
    return ((x - y) ** 2).mean()


def train_step(weights: Any, moments: Any, x: Any, y: Any) -> Any:
    """Trains two pipeline stages on the microbatches of one batch, with momentum."""

    def body(total: Any, xy: Any) -> Any:
        value, grads = jax.value_and_grad(loss_of)(weights, *xy)
        return jax.tree.map(jnp.add, total, grads), value

    cut = tuple(v.reshape(MICROBATCHES, -1, WIDTH) for v in (x, y))
    grads, losses = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, weights), cut)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
    return jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments, losses.mean()


STEP = pw.program(train_step, donate_argnums=(0, 1))


def first_state() -> Any:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in MESHES]
    return weights, [np.zeros_like(w) for w in weights]


def batch(step: int) -> Any:
    x = np.random.default_rng(step).standard_normal((ROWS, WIDTH)).astype(np.float32)
    return x, np.roll(np.tanh(x), 1, axis=1)


def losses_without_kills(embedded: Process) -> list[bytes]:
    with inside_of(embedded):
        state, found = first_state(), list[Any]()
        step = STEP.lower(*state, *batch(0)).compile(TOPOLOGY)
        for n in range(STEPS):
            *state, loss = step(*state, *batch(n))
            found.append(loss)
        return [v.tobytes() for v in values(found)]


@dataclass
class Kills:
    """Kills hosts at random moments, and records the process ids and ports of all hosts."""

    rng: random.Random
    seen: list[str] = field(default_factory=list[str])
    pids: set[int] = field(default_factory=set[int])
    ports: set[str] = field(default_factory=set[str])
    timers: list[threading.Timer] = field(default_factory=list[threading.Timer])

    def note(self) -> None:
        for island in host_pids():
            self.pids.add(pid_of(island))
            self.ports |= ports_of(pid_of(island))

    def draw(self) -> tuple[str, Callable[[], None]]:
        """Draws an island and a moment; returns the moment, and the function that kills the host."""
        self.note()
        island, moment = self.rng.choice(("island0", "island1")), self.rng.choice(("before", "in flight", "reading"))
        wait = self.rng.uniform(0, 0.01)

        def kill() -> None:
            if moment == "before":
                send(island, signal.SIGKILL)
                return
            self.timers.append(threading.Timer(wait, os.kill, (pid_of(island), signal.SIGKILL)))
            self.timers[-1].start()

        self.seen.append(f"{island} {moment}")
        return moment, kill


@contextmanager
def assert_no_leaks(kills: Kills, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Asserts that a cluster leaves no threads, files, processes, ports or folders of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = threads_of(), threading.active_count(), open_files_of(), children_of(os.getpid())
    yield
    for timer in kills.timers:
        timer.join()
    assert becomes(lambda: threading.active_count() <= before[1])
    after = threads_of(), threading.active_count(), open_files_of(), children_of(os.getpid())
    left = [str(p) for p in folder.glob("pathways-*")]
    print(f"threads {before[0]} -> {after[0]}, of Python {before[1]} -> {after[1]},", end=" ")
    print(f"open files {len(before[2])} -> {len(after[2])}, left in the folder: {left}")
    assert not [pid for pid in kills.pids if is_alive(pid)] and after[3] <= before[3]
    assert not kills.ports & listening() and kills.ports
    assert after[1] <= before[1] and after[0] <= before[0] + 2
    assert len(after[2]) <= len(before[2]) and not left


def train(kills: Kills) -> tuple[list[bytes], dict[int, list[int]]]:
    """Trains, and resumes from the client's copy of the state when a host is lost.

    Returns the losses, and the memory of all processes by step.
    """
    step = STEP.lower(*first_state(), *batch(0)).compile()
    held, losses, memory = (0, first_state()), list[Any](), dict[int, list[int]]()
    (done, state), killed, again = held, set[int](), 0
    while done < STEPS:
        try:
            moment, kill = "", _kill_nothing
            if done % STEPS_PER_KILL == STEPS_PER_KILL // 2 and done not in killed:
                killed.add(done)
                moment, kill = kills.draw()
            if moment == "before":
                kill()
            *state, loss = step(*state, *batch(done))
            losses.append(loss)
            done += 1
            if moment == "in flight":
                kill()
            if done % STEPS_PER_COPY == 0 or moment == "reading":
                if moment == "reading":
                    kill()
                losses[held[0] :] = [np.asarray(v) for v in losses[held[0] :]]
                held = done, jax.tree.map(np.asarray, state)
                state = held[1] if moment else state
            if done in (FIRST_MEMORY_STEP, STEPS) and done not in memory:
                memory[done] = [memory_of(), *(memory_of(pid_of(i)) for i in host_pids())]
        except pw.PathwaysError as error:
            assert error.code == "PWC0910", error
            again += done - held[0]
            done, state = held
            del losses[done:]
    print(f"\n{len(killed)} kills: {', '.join(kills.seen)}; {again} steps done again")
    return [v.tobytes() for v in losses], memory


def _kill_nothing() -> None:
    """Stands for the kill in steps that kill no host."""


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_training_with_killed_hosts_gives_the_same_losses_as_without(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = losses_without_kills(process())
    kills, begun = Kills(random.Random(0)), time.monotonic()
    with assert_no_leaks(kills, tmp_path_factory.mktemp("t"), monkeypatch), pw.cluster(TOPOLOGY):
        found, memory = train(kills)
        kills.note()
        gc.collect()
        assert becomes(lambda: arrays_on_hosts() <= 2)  # constants
    seconds = time.monotonic() - begun
    shown = {n: [f"{b / MIB:.0f}" for b in sizes] for n, sizes in memory.items()}
    print(f"{seconds:.1f} s; {len(kills.pids)} hosts; MiB here and of hosts: {shown}")
    assert found == want
    assert len(kills.pids) == 2 + len(kills.seen) and len(kills.seen) == STEPS // STEPS_PER_KILL
    for early, late in zip(memory[FIRST_MEMORY_STEP], memory[STEPS], strict=True):
        assert late < early + 64 * MIB


BIG = (2048, 2048)
VALUE_BYTES = 16 * MIB
"""Bytes of one value of the shape BIG."""


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_host_frees_values_that_a_lost_peer_host_never_received() -> None:
    """Values are offered to a frozen host. The sender frees them when that host is lost."""
    here, there = (NamedSharding(mesh, P("x")) for mesh in MESHES)
    first, second = (jit(lambda v: v + 1, in_shardings=s, out_shardings=s) for s in (here, there))
    send_one, make = pw.program(lambda v: second(first(v))), pw.program(lambda v: first(v))
    with pw.cluster(TOPOLOGY):
        given = make(np.ones(BIG, np.float32))
        np.asarray(send_one(given))
        source = given.handle.buffer.origin[1]
        target = next(i for i in host_pids() if i != source)
        memory: list[int] = []
        for _ in range(4):
            old = pid_of(target)
            send(target, signal.SIGSTOP)
            sent = [send_one(given) for _ in range(8)]
            np.asarray(given.copy())  # by now the source has offered all values
            memory.append(memory_of(pid_of(source)))
            send(target, signal.SIGKILL)
            assert becomes(lambda old=old: is_replaced(target, old))
            assert {code_of(np.asarray, s) for s in sent} == {"PWC0910"}
            assert np.asarray(send_one(given))[0, 0] == 4
            memory.append(memory_of(pid_of(source)))
    print(f"\nMiB of the source, with offers and without: {[m // MIB for m in memory]}")
    assert memory[-1] < memory[1] + 4 * VALUE_BYTES  # after memory[1], 24 values are offered to lost hosts


@pytest.mark.long("hundreds of training steps")
def test_memory_does_not_grow_during_training() -> None:
    with pw.cluster(TOPOLOGY):
        state, memory = first_state(), list[list[int]]()
        for n in range(STEPS):
            *state, loss = STEP(*state, *batch(n))
            if n in (FIRST_MEMORY_STEP, STEPS - 1):
                np.asarray(loss)
                memory.append([memory_of(), *(memory_of(pid_of(i)) for i in host_pids())])
    print(f"\nMiB here and of hosts: {[[m // MIB for m in each] for each in memory]}")
    for early, late in zip(*memory, strict=True):
        assert late < early + 32 * MIB
