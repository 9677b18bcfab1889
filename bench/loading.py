# pyright: basic
"""Measures the time to load a plan that this user wrote, and one of another user, which another process reads first.

    python bench/loading.py [--before FOLDER]

Reads and checks the plan of samples/train_lm.py, without its devices and with them (ready executables), several times
each way, in rotation; ratios are of medians. FOLDER is another checkout, which is measured in the same rotation.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
_MAKE = """
import importlib.util, sys
from pathways.api.process import process
from pathways.dialect.plan.plan_file import write_plan
spec = importlib.util.spec_from_file_location("train_lm", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
compiled = module.train_step.lower(*module.example_args()).compile()
compiled.save(sys.argv[2], executables=True)
open(sys.argv[3], "wb").write(write_plan(process().with_executables(compiled.plan)))
"""
_TIME = """
import json, sys, time
import pathways as pw
from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.plan.check_modules import check_modules
path = sys.argv[1]
pw.load(path)  # makes the devices
def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
reading = [seconds(lambda: check_modules(load_plan(path), path)) for _ in range(5)]
print(json.dumps([min(reading), min(seconds(lambda: pw.load(path)) for _ in range(5))]))
"""


def python(folder, source, *arguments):
    env = os.environ | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-c", source, *map(str, arguments)]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        marked, unmarked = Path(made) / "marked.bin", Path(made) / "unmarked.bin"
        python(HERE, _MAKE, HERE / "samples" / "train_lm.py", marked, unmarked)
        ways = {"marked": (HERE, marked), "unmarked": (HERE, unmarked)}
        if asked.before is not None:
            ways = {"before": (asked.before, marked)} | ways
        times = {name: [] for name in ways}
        for _ in range(asked.rounds):
            for name, (folder, path) in ways.items():
                times[name].append(json.loads(python(folder, _TIME, path)))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    base = medians.get("before", medians["marked"])
    for name, (reading, loading) in medians.items():
        a, b = reading / base[0], loading / base[1]
        print(f"{name:9} read and check {1e3 * reading:7.1f} ms ({a:.2f})   load {1e3 * loading:7.1f} ms ({b:.2f})")
    print(f"ratios to {'before' if 'before' in medians else 'marked'}")


if __name__ == "__main__":
    main()
