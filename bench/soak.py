# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
"""Runs a shared cluster through half an hour of failures: python bench/soak.py [--minutes 30] [--every 20].

A training runs next to two other clients. At a fixed interval a host is killed or frozen, or a client is killed. In the
end it prints whether all losses are those of a training without failures, and whether any sum of the others was wrong.
It also prints the memory, threads and descriptors of the processes early and late, and everything left on the cluster.

    python bench/soak.py --minutes 10 --attackers 2

The same without failures, but next to clients that send every message with hostile fields to the controller and to
hosts. In the end, all hosts must be the processes that were started.
"""

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.shared_cluster import start_shared
from pathways.dialect.topology import parse_topology
from pathways.runtime.launch.reach import ask
from pathways.runtime.wire.frames import ConnectionEnded

jit: Any = jax.jit
WIDTH, ROWS, STEPS_PER_COPY = 64, 32, 5
"""The sizes of the training, and the number of steps between two copies that the client keeps."""
EARLY_FRACTION = 1 / 3
"""Fraction of the whole time at which memory is first measured."""
SLICES: Any = pw.make_virtual_device_set()
PLACES = [NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P()) for _ in range(2)]
STAGES = [jit(lambda w, x: jnp.tanh(x @ w), in_shardings=(place, place)) for place in PLACES]


def loss_of(weights: Any, x: Any, y: Any) -> Any:
    for stage, w in zip(STAGES, weights, strict=True):
        x = stage(w, x)
    return ((x - y) ** 2).mean()


def decayed(moment: Any, gradient: Any) -> Any:
    return 0.9 * moment + gradient


def moved(weight: Any, moment: Any) -> Any:
    return weight - 0.01 * moment


@pw.program
def step(weights: Any, moments: Any, x: Any, y: Any) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(weights, x, y)
    moments = jax.tree.map(decayed, moments, grads)
    return jax.tree.map(moved, weights, moments), moments, loss


def first_state() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    weights = tuple(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in STAGES)
    return weights, jax.tree.map(np.zeros_like, weights)


def batch(number: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return x, np.roll(x, 1, axis=1) / 2


def here(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree, is_leaf=lambda v: isinstance(v, pw.Array))


def doubled(v: Any) -> Any:
    return v * 2 + 1


def other(address: str, seed: int) -> None:
    """Runs another client: sums over two islands until standard input closes. Prints the wrong, lost and right sums."""
    rng, wrong, lost, right = random.Random(seed), 0, 0, 0
    f, g = (jit(doubled, in_shardings=p, out_shardings=p) for p in PLACES)

    @pw.program
    def program(v: Any) -> Any:
        return g(f(v)).sum()

    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    with pw.connect(address, name=f"other {seed}"):
        while not told.wait(0.02):
            value = rng.randrange(100)
            try:
                found = float(program(np.full((8, 8), value, np.float32)))
                wrong += found != 64 * (2 * (2 * value + 1) + 1)
                right += 1
            except pw.PathwaysError as error:
                lost += 1
                assert error.code == "PWC0910", error
    print(wrong, lost, right, flush=True)


def attack(address: str, seed: int) -> None:
    """Sends hostile messages until standard input closes. Prints how many, and by how many clients."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    hostile: Any = import_module("support.hostile")
    rng, sent, clients = random.Random(seed), 0, 0
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    while not told.is_set():
        with suppress(ConnectionEnded, AssertionError, OSError):
            client = hostile.HostileClient(address)
            island = rng.choice(list(client.welcome.hosts))
            host, plan = client.host(island), client.ids(1)
            client.load(host, plan)
            clients += 1
            messages = list(
                hostile.hostile_messages(client.ids(3), client.welcome.client, rng, other_fields=rng.randrange(3))
            )
            rng.shuffle(messages)
            for message in messages:
                to_control = hostile.send(client.control, client.wrapped(island, message, plan, sent))
                to_host = hostile.send(host, message)
                sent += to_control + to_host
                if told.is_set() or not (to_control and to_host):
                    break
            host.close()
            client.close()
    print(sent, clients, flush=True)


def sizes_of(pid: int) -> tuple[int, int, int]:
    """Returns the MiB, threads and descriptors of a process; zeros if there is none."""
    try:
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        return memory, len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0, 0, 0


def began(pid: int) -> str:
    """Returns the start time of a process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


class Soak:
    """A cluster, its clients, and the failures so far."""

    def __init__(self, address: str, every: float, attackers: int) -> None:
        self.address, self.every, self.rng = address, every, random.Random(0)
        self.done: Counter[str] = Counter()
        self.pids: dict[int, str] = {}
        """Start time of each process: process ids are reused."""
        self.others = [self.start(seed) for seed in range(2)]
        self.attackers = [self.start(seed, "--attack") for seed in range(attackers)]

    def start(self, seed: int, kind: str = "--client") -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, kind, self.address, "--seed", str(seed)]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pids[started.pid] = began(started.pid)
        return started

    def hosts(self) -> dict[str, int]:
        found = {h["name"]: h["pid"] for i in ask(self.address, "status")["islands"] for h in i["hosts"]}
        self.pids |= {pid: began(pid) for pid in found.values() if pid}
        return found

    def fail(self) -> None:
        """Causes the next failure."""
        what = self.rng.choice(["kill a host", "freeze a host", "kill a host", "kill a client"])
        self.done[what] += 1
        if what == "kill a client":
            gone = self.rng.randrange(2)
            self.others[gone].kill()
            self.others[gone].communicate()
            self.others[gone] = self.start(10 + self.done[what])
            return
        with_name = self.rng.choice(sorted(self.hosts().items()))
        if with_name[1]:
            os.kill(with_name[1], signal.SIGKILL if what == "kill a host" else signal.SIGSTOP)

    def train(self, seconds: float) -> tuple[list[bytes], list[int], dict[float, dict[str, tuple[int, int, int]]]]:
        """Trains for `seconds`; returns the losses, the repeated steps of each failure, and sizes early and late."""
        losses: list[bytes] = []
        again: list[int] = []
        sizes: dict[float, dict[str, tuple[int, int, int]]] = {}
        begin, harm = time.monotonic(), self.every
        kept, state = (0, first_state()), first_state()
        while (now := time.monotonic() - begin) < seconds:
            if now > harm:
                harm += self.every
                self.fail()
            if now > EARLY_FRACTION * seconds and EARLY_FRACTION not in sizes:
                sizes[EARLY_FRACTION] = self.sizes()
            number = len(losses)
            try:
                *new, loss = step(*state, *batch(number))
                losses.append(np.asarray(loss).tobytes())
                state = tuple(new)
                if len(losses) % STEPS_PER_COPY == 0:
                    kept = len(losses), here(state)
            except pw.PathwaysError as error:
                assert error.code == "PWC0910", error
                again.append(len(losses) - kept[0])
                del losses[kept[0] :]
                state = kept[1]
        sizes[1.0] = self.sizes()
        return losses, again, sizes

    def sizes(self) -> dict[str, tuple[int, int, int]]:
        pids = {"client": os.getpid(), "controller": ask(self.address, "status")["pid"], **self.hosts()}
        return {name: sizes_of(pid) for name, pid in pids.items()}

    def end(self, processes: "list[subprocess.Popen[str]]") -> list[str]:
        return [each.communicate("")[0].strip() for each in processes]


def main(minutes: float, every: float, topology: str, attackers: int) -> None:
    os.environ.setdefault("PATHWAYS_HOST_TIMEOUT", "3")
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        address = str(Path(folder) / "c")
        start_shared(address, parse_topology(topology), "stride")
        soak = Soak(address, math.inf if attackers else every, attackers)
        before = soak.hosts()
        with pw.connect(address, name="training"):
            losses, again, sizes = soak.train(60 * minutes)
        sent, sums = soak.end(soak.attackers), soak.end(soak.others)
        same = soak.hosts() == before
        left = ask(address, "status")
        soak.hosts()
        soak.pids[left["pid"]] = began(left["pid"])
        ask(address, "stop")
    state: Any = first_state()
    wanted: list[bytes] = []
    for number in range(len(losses)):
        *state, loss = step(*state, *batch(number))
        wanted.append(np.asarray(loss).tobytes())
    time.sleep(2)
    alive = [pid for pid, when in soak.pids.items() if when and began(pid) == when]
    print(f"{minutes:g} minutes on {topology}: {sum(soak.done.values())} failures: {dict(soak.done)}")
    print(f"training: {len(losses)} steps, {sum(again)} done again; losses equal without failures: {losses == wanted}")
    print(f"others (wrong, lost, right sums): {'; '.join(sums)}")
    if attackers:
        print(f"attackers (messages, clients): {'; '.join(sent)}; hosts are the same processes: {same}")
    for name, early in sizes[EARLY_FRACTION].items():
        print(f"{name}: MiB, threads, descriptors early {early}, late {sizes[1.0].get(name)}")
    held = [i["held"] for i in left["islands"]]
    print(f"left on the cluster: held {held}, clients {len(left['clients'])}; processes left: {alive}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=20, help="seconds between two failures")
    parser.add_argument("--topology", default="islands=3,devices=2")
    parser.add_argument("--attackers", type=int, default=0, help="hostile clients in place of failures")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        other(chosen.client, chosen.seed)
    elif chosen.attack:
        attack(chosen.attack, chosen.seed)
    else:
        main(chosen.minutes, chosen.every, chosen.topology, chosen.attackers)
