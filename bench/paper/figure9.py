# pyright: basic
"""Measures proportional shares (paper, Figure 9): four clients with weights 1:1:1:1 and 1:2:4:8 compete for one device.

python bench/paper/figure9.py [--seconds 5]
"""

import argparse
import sys
from pathlib import Path

from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from row import Figure, Row

import pathways as pw

sys.path.insert(0, str(Path(__file__).parents[1]))
import shares

WEIGHTS = ((1, 1, 1, 1), (1, 2, 4, 8))
SIZE = 256
"""Rows and columns of the matrix of a program."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    program = shares.make_program(NamedSharding(mesh, P()), SIZE)
    row, lines = Row(
        "figure9", "Proportional shares of four clients (Figure 9)",
        "shares of 1:1:1:1 and 1:2:4:8 are enforced at millisecond scale; the shares reached are only in a plot",
    ), {}  # fmt: skip
    for weights in WEIGHTS:
        counts = shares.measure(list(weights), seconds, SIZE, program)
        reached = [count / sum(counts) for count in counts]
        due = [weight / sum(weights) for weight in weights]
        name = ":".join(map(str, weights))
        worst = max(abs(a / b - 1) for a, b in zip(reached, due, strict=True))
        row.measured.append(Figure(f"weights {name}", " : ".join(f"{share:.1%}" for share in reached),
                                   f"at most {worst:.1%} from the weight"))  # fmt: skip
        lines[name] = [(number + 1, 100 * share) for number, share in enumerate(reached)]
    row.write(("client", "% of all runs", lines, False))


if __name__ == "__main__":
    main()
