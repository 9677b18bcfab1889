"""Programs that clients of a shared cluster run in their own processes: `python -m support.client_programs NAME`."""

import random
import sys
import threading
import time
from collections import deque
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from support.two_islands import HERE, f, g, jit

X = np.arange(16.0, dtype=np.float32).reshape(4, 4)


def slow(x: Any) -> Any:
    for _ in range(80):
        x = jax.numpy.tanh(x @ x)
    return x


@pw.program
def both(x: Any) -> Any:
    return g(f(x)).sum() + f(x).sum()


@pw.program
def endless(x: Any) -> Any:
    return lax.while_loop(lambda v: v.sum() >= 0, lambda v: g(f(v)) * 0, x)


def expected(x: Any) -> float:
    y = x * 2 + 1
    return float((y @ y.T).sum() + y.sum())


def share(weight: str, runs: str) -> None:
    """Submits runs for a client of the given weight when told to; prints the time at which each run completed."""
    busy = pw.program(lambda x: jit(slow, in_shardings=HERE, out_shardings=HERE)(x))
    with pw.Client("worker", weight=float(weight)):
        x = busy(np.eye(256, dtype=np.float32) / 10)
        x.block_until_ready()
        print("ready", flush=True)
        sys.stdin.readline()
        results = [busy(x) for _ in range(int(runs))]
        print("submitted", flush=True)
        ends: list[float] = []
        for result in results:
            result.block_until_ready()
            ends.append(time.time())
        print(*ends, flush=True)
        sys.stdin.readline()


def sums(seed: str, runs: str) -> None:
    """Runs programs on both islands; prints the count of wrong sums and the count of lost runs."""
    rng = random.Random(seed)
    wrong = lost = 0
    pending = deque[tuple[Any, Any]]()
    for number in range(int(runs)):
        x = X + rng.randrange(100)
        try:
            pending.append((x, both(x)))
        except pw.PathwaysError as error:
            lost += _lost(error)
        if len(pending) > 8 or number == int(runs) - 1:
            while len(pending) > 4:
                given, result = pending.popleft()
                try:
                    wrong += abs(float(result) - expected(given)) > 1e-2 * abs(expected(given))
                except pw.PathwaysError as error:
                    lost += _lost(error)
    print(wrong, lost, flush=True)


def _lost(error: pw.PathwaysError) -> int:
    assert error.code == "PWC0910", error
    return 1


def hold() -> None:
    """Holds arrays on both islands and endless loops, until the process is killed or reads a line."""
    arrays = [both(X), endless(X), endless(X)]
    print("ready", flush=True)
    sys.stdin.readline()
    del arrays


def elsewhere() -> None:
    """Runs a program on `island2` until it reads a line; prints the count of wrong results."""
    own = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2, island="island2").mesh("x"), P("x"))
    program = pw.program(lambda x: jit(lambda v: v * 2 + v.sum(), in_shardings=own, out_shardings=own)(x))
    told, wrong = threading.Event(), 0
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    state = program(X)
    state.block_until_ready()
    print("ready", flush=True)
    while not told.wait(0.01):
        found = np.asarray(program(state))
        given = np.asarray(state)
        wrong += not np.allclose(found, given * 2 + given.sum(), rtol=1e-5)
    print(wrong, flush=True)


def called_back(function: Any) -> Any:
    """Creates a program whose computation calls a function of this process (a host callback)."""

    def call(x: Any) -> Any:
        return jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return pw.program(lambda x: jit(call, in_shardings=HERE, out_shardings=HERE)(x))


def callbacks(number: str) -> None:
    """Calls back a function that multiplies by this client's number; prints the number, and `right` or `wrong`."""
    program = called_back(lambda x: np.asarray(x) * float(number))
    results = [program(X + at) for at in range(20)]
    right = all((np.asarray(r) == (X + at) * float(number)).all() for at, r in enumerate(results))
    print(number, "right" if right else "wrong", flush=True)


def prints() -> None:
    """Returns before its debug callback has printed."""

    def late(x: Any) -> None:
        threading.Event().wait(0.2)
        print("printed", float(x), flush=True)

    def call(x: Any) -> Any:
        jax.debug.callback(late, x[1, 2])
        return x

    pw.program(lambda x: jit(call, in_shardings=HERE, out_shardings=HERE)(x))(X)


def stuck() -> None:
    """Calls back a function that never returns; prints the code of the resulting error."""

    def never(x: Any) -> Any:
        print("inside", flush=True)
        threading.Event().wait()

    try:
        np.asarray(called_back(never)(X))
    except pw.PathwaysError as error:
        print(error.code, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    programs = [share, sums, hold, elsewhere, callbacks, prints, stuck]
    {program.__name__: program for program in programs}[sys.argv[1]](*sys.argv[2:])
