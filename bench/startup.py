# pyright: basic
"""Measures the time until a plan is ready on its devices: with ready executables, and with compiling.

    python bench/startup.py

Loads the plan of samples/train_lm.py anew, several times each way, in rotation; ratios are of medians.
"""

import argparse
import gc
import importlib.util
import statistics
import time
from pathlib import Path
from typing import Any

import jax

from pathways.api.process import process
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.host.devices.islands import Machine


def sample():
    path = Path(__file__).parents[1] / "samples" / "train_lm.py"
    spec: Any = importlib.util.spec_from_file_location("train_lm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(plan, machine, ready):
    controller = Controller(machine)
    controller.executables.folder = None
    controller.executables.offer(plan.executables if ready else {})
    gc.collect()  # frees the code of the previous round
    begin = time.perf_counter()
    LoadedPlan(plan, controller)
    return time.perf_counter() - begin, controller.executables.compiled


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    module = sample()
    plan = process().with_executables(module.train_step.lower(*module.example_args()).compile().plan)
    machine = Machine("cpu")
    seconds(plan, machine, True)  # makes the devices
    times = {True: [], False: []}
    for _ in range(rounds):
        for ready in times:
            taken, compiled = seconds(plan, machine, ready)
            assert (compiled == 0) == ready
            times[ready].append(taken)
    a, b = statistics.median(times[True]), statistics.median(times[False])
    size = sum(map(len, plan.executables.values()))
    print(f"jax {jax.__version__}, {len(plan.executables)} executables, {size:,} bytes")
    print(f"ready      {1e3 * a:8.1f} ms")
    print(f"compiling  {1e3 * b:8.1f} ms, compiling / ready {b / a:.1f}")


if __name__ == "__main__":
    main()
