"""A program that blocks in a chosen activity until it reads a line from stdin; runs as a script or a source of `pwc`.

PATHWAYS_TEST_WHERE chooses the activity. The line `fail` makes the activity raise an error. Progress is shown without
the usual delay of one second. With PATHWAYS_TEST_CLOCK=stands the clock is frozen, so that the delay never passes.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pathways as pw
from pathways.api.process import process
from pathways.api.progress_display import PROGRESS
from pathways.compiler.passes import merge_calls
from pathways.dialect import activities
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.control import admission
from pathways.runtime.control.members import Members
from pathways.runtime.control.scheduling import Request
from pathways.runtime.host.devices import executable_cache

WHERE = os.environ.get("PATHWAYS_TEST_WHERE", "")
X = np.ones(1, np.float32)
LARGER = np.ones((1, 1024), np.float32)


def wait(where: str) -> None:
    """Waits for a line from stdin if PATHWAYS_TEST_WHERE names this activity; raises if the line is `fail`."""
    if where == WHERE and sys.stdin.readline().strip() == "fail":
        raise RuntimeError("it failed as it was told to")


def wait_before(module: Any, name: str, where: str) -> None:
    """Replaces a function of a module by one that first waits for a line."""
    begin: Callable[..., Any] = getattr(module, name)

    def waits(*args: Any, **kwargs: Any) -> Any:
        wait(where)
        return begin(*args, **kwargs)

    setattr(module, name, waits)


def make_step() -> Any:
    devices = pw.make_virtual_device_set().add_slice(tpu_devices=1).tpus
    double = jax.pmap(lambda x: x * 2.0, devices=devices)
    more = jax.pmap(lambda x: x + 1.0, devices=devices)

    @pw.program(example_args=(X,))
    def step(x: Any) -> Any:
        wait("trace")
        if WHERE == "prints":
            print("one ", end="", flush=True)
            wait("prints")
            print("line")
            print("to stderr", file=sys.stderr)
            wait("prints")
        return more(double(x))

    return step


step = make_step()


def wait_for_turn() -> None:
    """Calls the program while another client's run occupies the islands; a line from stdin completes that run."""
    step(X)
    controller = process().controller
    run_queue, islands = controller.run_queue, frozenset(island.key for island in controller.machine.islands)
    ticket = run_queue.enter(Request(next(controller.numbers), "trainer", "fit", islands), lambda ticket: None)
    let_go(lambda: run_queue.finished(ticket))


def wait_for_memory() -> None:
    """Calls the program while another client's arrays occupy the memory; a line from stdin drops the arrays."""
    compiled = step.lower(LARGER).compile(f"islands=1,devices=1,memory={3 * LARGER.nbytes}")
    with pw.Client("holder"):
        held = [compiled(LARGER).block_until_ready() for _ in range(2)]
        with pw.Client("other"):
            let_go(held.clear)
            compiled(LARGER)


def let_go(end: Callable[[], object]) -> None:
    """Calls `end` from a thread when a line is read from stdin."""
    threading.Thread(target=lambda: (sys.stdin.readline(), end())).start()


def main() -> None:
    if WHERE == "memory":
        wait_for_memory()
    elif WHERE == "hosts":
        with pw.cluster(islands=2, devices=1):
            print("hosts are there")
        return
    elif WHERE == "cluster":
        print("result", np.asarray(step(LARGER))[0, 0])
        return
    elif WHERE == "turn":
        wait_for_turn()
    print("result", step(X))


if os.environ.get("PATHWAYS_TEST_CLOCK") == "stands":
    activities.clock = lambda: 0.0
else:
    PROGRESS.after = PROGRESS.ask_after = 0.0
admission.QUEUE_POLL_INTERVAL_S = 0.01
wait_before(executable_cache, "_compiled", "xla")
wait_before(merge_calls, "merge", "merge")
wait_before(Members, "hello", "hosts")
wait_before(LoadedPlan, "run", "run")
if __name__ == "__main__":
    main()
