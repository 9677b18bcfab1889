# pyright: basic
"""Compares predictions with timed devices (`bench/timed.py`), and writes the result as a row of the evaluation.

python bench/paper/predictions.py [--rounds 5]
"""

import argparse
import itertools
import sys
from pathlib import Path
from statistics import median

from row import Figure, Row

sys.path.insert(0, str(Path(__file__).parents[1]))
import timed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    host_us, hop_us = timed.measured_overheads(rounds)
    row = Row("predictions", "Predictions beside timed devices (not in the paper)", "not in the paper")
    errors, wrong, pairs, lines = [], 0, 0, {}
    for case in timed.cases():
        found = list(timed.compared(case, rounds, 0.2, host_us, hop_us))
        mine = [predicted / real - 1 for _, _, real, predicted in found]
        errors += map(abs, mine)
        lines[case.name] = [(real * 1e3, predicted * 1e3) for _, _, real, predicted in found]
        for (_, _, a, x), (_, _, b, y) in itertools.combinations(found, 2):
            if abs(a / b - 1) > timed.CLEARLY:
                pairs += 1
                wrong += (a > b) != (x > y)
        row.measured.append(Figure(f"{case.name}, {len(found)} schedules and placements",
                                   f"error of a step from {min(mine):+.1%} to {max(mine):+.1%}"))  # fmt: skip
    row.measured.append(Figure("all", f"median error {median(errors):.1%}, worst {max(errors):.1%}",
                               f"{wrong} of {pairs} pairs that differ by over 5 % are ranked wrongly"))  # fmt: skip
    row.assumes = [f"{host_us:.0f} us of a host for an instruction and {hop_us:.0f} us more for a hop, measured first"]
    row.write(("step of timed devices, ms", "predicted, ms", lines, False))


if __name__ == "__main__":
    main()
