# pyright: basic
"""Counts what a program costs for more and more shards (paper, section 4.3): operations, bytes and messages.

python bench/paper/compact.py
"""

import jax
import numpy as np
from row import Figure, Row

import pathways as pw
from pathways.compiler.pass_manager import Options
from pathways.dialect.plan.plan_file import write_plan
from pathways.dialect.topology import parse_topology

SHARDS = (2, 32, 512, 2048)


def lowered(shards):
    devices = pw.make_virtual_device_set()
    first, last = (devices.add_slice(devices=shards) for _ in range(2))
    a, b = jax.pmap(lambda x: x * 2, devices=first.tpus), jax.pmap(lambda x: x + 1, devices=last.tpus)
    return pw.program(lambda x: b(a(x))).lower(np.zeros(shards, np.float32))


def main():
    row, lines = Row(
        "compact", "A program for any number of shards (section 4.3)",
        "a chain of two computations is four nodes, Arg -> A -> B -> Result, for any number of shards",
    ), {"bytes of the plan": [], "operations of the trace": []}  # fmt: skip
    for shards in SHARDS:
        program = lowered(shards)
        operations = len(list(program.module.body.operations))
        plan = program.compiled(parse_topology(f"islands=2,devices={shards}"), Options()).plan()
        instructions = sum(len(stream.instructions) for stream in plan.streams)
        size = len(write_plan(plan))
        lines["bytes of the plan"].append((shards, size))
        lines["operations of the trace"].append((shards, operations))
        row.measured.append(Figure(f"{shards} shards", f"{operations} operations at the top of the trace, "
                                   f"{instructions} instructions, {size:,} bytes of plan.bin",
                                   ))  # fmt: skip
    row.assumes = ["a run is one message to each host and one back, by construction"]
    row.write(("shards", "count", lines))


if __name__ == "__main__":
    main()
