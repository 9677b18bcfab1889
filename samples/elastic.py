# pyright: basic
"""Elastic data-parallel training: at given steps an island is removed, killed, or added.

    python samples/elastic.py --islands 4 --steps 60 --remove-at 20 --kill-at 30 --add-at 40

Each island has a replica of the state, and takes the same number of rows of every batch. So with fewer islands a batch
is smaller. After a loss, training continues on the remaining islands, from the surviving replicas. If none survives, or
with `--recover snapshot`, it continues from the last snapshot. `--check` compares every loss with plain JAX on one
device, on the same batches.
"""

import argparse
import os
import pydoc_data.topics
import signal
import tempfile
import time
from itertools import groupby
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

CONTEXT, WIDTH, HIDDEN, VOCABULARY, ROWS = 8, 16, 64, 256, 32
TEXT = np.frombuffer(
    "\n".join(pydoc_data.topics.topics[k] for k in sorted(pydoc_data.topics.topics)).encode(), np.uint8
)
OPTIMIZER = optax.sgd(0.3, momentum=0.9)
LOST = ("PWC0910", "PWC0922")
"""Error codes for arrays and runs of an island that was lost or removed."""


def loss_of(params, text):
    """Predicts the character after each row of `CONTEXT` characters, and returns the mean loss."""
    x = params["embed"][text[:, :-1]].reshape(len(text), -1)
    logits = jnp.tanh(x @ params["in"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, -1]).mean()


def apply(state, gradients):
    params, moments = state
    updates, moments = OPTIMIZER.update(gradients, moments)
    return optax.apply_updates(params, updates), moments


def first_state(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"embed": (VOCABULARY, WIDTH), "in": (CONTEXT * WIDTH, HIDDEN), "out": (HIDDEN, VOCABULARY)}
    params = {
        n: (rng.standard_normal(s) / np.sqrt(s[0] if n != "embed" else 1)).astype(np.float32) for n, s in shapes.items()
    }
    return params, jax.device_get(OPTIMIZER.init(params))


def batch(step, islands):
    """Returns the rows of each island at a step."""
    starts = np.random.default_rng(step).integers(0, len(TEXT) - CONTEXT - 1, islands * ROWS)
    rows = np.stack([TEXT[s : s + CONTEXT + 1] for s in starts]).astype(np.int32)
    return np.split(rows, islands)


@jax.jit
def plain_step(state, rows):
    loss, gradients = jax.value_and_grad(loss_of)(state[0], rows)
    return apply(state, gradients), loss


def plain_losses(schedule):
    """Computes the losses of the same batches on one device; `schedule` is the number of islands at each step."""
    state, losses = first_state(), []
    for step, islands in enumerate(schedule):
        state, loss = plain_step(state, np.concatenate(batch(step, islands)))
        losses.append(float(loss))
    return losses


def make_step(slices):
    """Makes a step over some slices: each computes gradients, the first their mean, and every replica applies it."""
    whole = [NamedSharding(s.mesh("rows"), P()) for s in slices]
    rows = [NamedSharding(s.mesh("rows"), P("rows")) for s in slices]
    gradients = [
        jax.jit(jax.value_and_grad(loss_of), in_shardings=places, out_shardings=places[0])
        for places in zip(whole, rows, strict=True)
    ]
    mean = jax.jit(
        lambda parts: jax.tree.map(lambda *of: sum(of) / len(slices), *parts),
        in_shardings=whole[0],
        out_shardings=whole[0],
    )
    update = [jax.jit(apply, in_shardings=place, out_shardings=place) for place in whole]

    @pw.program
    def step(states, batches):
        parts = [g(state[0], rows) for g, state, rows in zip(gradients, states, batches, strict=True)]
        loss, common = mean(parts)
        return [u(state, common) for u, state in zip(update, states, strict=True)], loss

    return step


class Trainer:
    """Training on the current islands: the state of each by name, and one program for each set of islands."""

    def __init__(self, snapshot, recover="arrays"):
        self.step, self.losses, self.schedule, self.events = 0, [], [], []
        self._snapshot, self._recover = snapshot, recover
        self._slices, self._programs = {}, {}
        self.states = {island.name: first_state() for island in pw.islands()}
        self.last, self._pause = time.perf_counter(), None

    def advance(self, meanwhile=None):
        """Runs a step, or recovers if an island was lost. `meanwhile` is called while the step runs."""
        names = tuple(self.states)
        try:
            states, loss = self._program(names)(list(self.states.values()), batch(self.step, len(names)))
            if meanwhile is not None:
                meanwhile()
            loss = float(loss)
        except pw.PathwaysError as error:
            if error.code not in LOST:
                raise
            self._go_back(error)
            return
        self.states = dict(zip(names, states, strict=True))
        del self.losses[self.step :], self.schedule[self.step :]
        self.losses.append(loss)
        self.schedule.append(len(names))
        self.step += 1
        now = time.perf_counter()
        if self._pause is not None:
            what, lost = self._pause
            self.events.append((what, lost, now - self.last))
            print(f"  {what}: {lost} steps lost, {now - self.last:.2f} s until the next step was done")
            self._pause = None
        self.last = now
        print(f"step {self.step - 1:3}  {len(names)} islands  batch {len(names) * ROWS:4}  loss {loss:.6f}")

    def _program(self, names):
        """Returns the program for a set of islands, compiled once; slices keep their islands."""
        for island in pw.islands():
            if island.name in names and island.name not in self._slices:
                devices = pw.make_virtual_device_set()
                self._slices[island.name] = devices.add_slice(devices=island.size, island=island.name)
        if names not in self._programs:
            self._programs[names] = make_step([self._slices[name] for name in names])
        return self._programs[names]

    def _go_back(self, error):
        """Restores the state from the surviving replicas, else from the snapshot; removes the lost islands."""
        before, alive = self.step, {name: state for name, state in self.states.items() if is_there(state)}
        for name in set(self.states) - set(alive):
            if any(island.name == name for island in pw.islands()) and len(pw.islands()) > 1:
                pw.remove_island(name, now=True)
        if self._recover == "snapshot" or not alive:
            step, state = pw.restore((np.int32(0), first_state()), self._snapshot)
            self.step, self.states = int(step), {island.name: state for island in pw.islands()}
        else:
            self.states = alive
        self.pause(f"{error.diagnostic.text(error.diagnostic.title)}", before - self.step)

    def save(self):
        pw.save((np.int32(self.step), next(iter(self.states.values()))), self._snapshot)

    def pause(self, what, lost=0):
        self._pause = f"step {self.step}: {what}", lost

    def remove(self):
        """Removes the last island after its work completes."""
        name, _ = self.states.popitem()
        pw.remove_island(name)
        self.pause(f"{name} was removed")

    def add(self):
        """Adds an island, with a copy of another island's replica."""
        island = pw.add_island()
        self.states[island.name] = next(iter(self.states.values()))
        self.pause(f"{island.name} was added")


def is_there(state):
    try:
        for leaf in jax.tree.leaves(state):
            if isinstance(leaf, pw.Array):
                leaf.block_until_ready()
    except pw.PathwaysError:
        return False
    return True


def kill(island):
    """Kills the process of an island, as the kernel does if memory is exhausted."""
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    for pid in children:
        if f"--island\0{island}\0" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(int(pid), signal.SIGKILL)


def train(steps=60, remove_at=(), kill_at=(), add_at=(), recover="arrays", snapshot_every=10):
    """Trains, with changes of the islands at the given steps.

    Returns the losses, the number of islands at each step, and the events with steps lost and seconds paused.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(f"{folder}/state.npz", recover)
        removals, kills, additions = list(remove_at), list(kill_at), list(add_at)
        while trainer.step < steps:
            if trainer.step % snapshot_every == 0:
                trainer.save()
            if trainer.step in removals:
                removals.remove(trainer.step)
                trainer.remove()
            if trainer.step in additions:
                additions.remove(trainer.step)
                trainer.add()
            if trainer.step in kills:
                kills.remove(trainer.step)
                trainer.advance(lambda: kill(list(trainer.states)[-1]))
            else:
                trainer.advance()
        return trainer.losses, trainer.schedule, trainer.events


def report(schedule, events):
    step = 0
    for islands, group in groupby(schedule):
        count = len(list(group))
        print(f"steps {step} to {step + count - 1}: {islands} islands, batches of {islands * ROWS}")
        step += count
    print(f"{sum(lost for _, lost, _ in events)} steps lost, {sum(s for *_, s in events):.2f} s paused")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--islands", type=int, default=4)
    parser.add_argument("--devices", type=int, default=1, help="of each island")
    parser.add_argument("--steps", type=int, default=60)
    for what in ("remove", "kill", "add"):
        parser.add_argument(f"--{what}-at", type=int, nargs="*", default=[], metavar="STEP")
    parser.add_argument("--recover", choices=("arrays", "snapshot"), default="arrays", help="from which it goes on")
    parser.add_argument("--snapshot-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--check", action="store_true", help="compare with plain JAX; exit code 1 where it differs")
    chosen = vars(parser.parse_args())
    check = chosen.pop("check")
    with pw.cluster(islands=chosen.pop("islands"), devices=chosen.pop("devices")):
        losses, schedule, events = train(**chosen)
    report(schedule, events)
    if check:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, plain_losses(schedule), strict=True))
        print(f"largest relative difference of a loss from plain JAX: {worst:.1e}")
        raise SystemExit(worst > 1e-5)
