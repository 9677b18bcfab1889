# pyright: basic
"""Runs benches of two checkouts alternately, and prints for each row how much faster this checkout is.

    python bench/versions.py FOLDER [--rounds 3] [chain pipeline throughput startup]

FOLDER is another checkout of the project (`git worktree add ../before REVISION`). Each bench runs in its own process
with the code of its checkout. Only their output is compared: times and rates, by the name of their row. A ratio is of
medians over the rounds; above 1 this checkout is faster.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parents[1]
BENCHES = ("chain", "pipeline", "throughput", "startup")
ROW = re.compile(r"^\s*(?P<name>[a-z][\w ,-]*?)\s{2,}(?P<value>[\d.,]+) (?P<unit>us|ms|runs a second)\b")


def rows_of(text: str) -> dict[str, tuple[float, bool]]:
    """Returns the figures that a bench printed, by section and row, and whether more is better."""
    found: dict[str, tuple[float, bool]] = {}
    section = ""
    for line in text.splitlines():
        match = ROW.match(line)
        if match is None:
            section = line.strip() if line[:1].isupper() else section
            continue
        name = ": ".join(filter(None, (section.rstrip("."), match["name"])))
        found[name] = float(match["value"].replace(",", "")), match["unit"] == "runs a second"
    return found


def run(checkout: Path, bench: str) -> dict[str, tuple[float, bool]]:
    env = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, str(checkout / "bench" / f"{bench}.py")]
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: bench/{bench}.py ended with {done.returncode}\n{done.stderr[-2000:]}")
    return rows_of(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("benches", nargs="*", default=BENCHES)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_intermixed_args()
    for bench in arguments.benches:
        figures: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
        rates: dict[str, bool] = {}
        for turn in range(arguments.rounds):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, (value, is_rate) in run((arguments.before.resolve(), HERE)[which], bench).items():
                    figures[name][which].append(value)
                    rates[name] = is_rate
        print(f"bench/{bench}.py")
        for name, (before, here) in figures.items():
            if before and here:
                was, now = statistics.median(before), statistics.median(here)
                faster = now / was if rates[name] else was / now
                print(f"  {name:60} before {was:10,.1f}  here {now:10,.1f}  faster {faster:5.2f}", flush=True)


if __name__ == "__main__":
    main()
