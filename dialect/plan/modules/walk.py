"""Iterates over all operations of an MLIR function, and refuses a function that is nested too deep or jumps between
blocks. It does not recurse, because a hostile module may be nested extremely deep. `check.py` calls it.
"""

from collections.abc import Iterator

from pathways.dialect.bare_mlir import Operation
from pathways.dialect.plan.modules.stated_module import Refused

MAX_DEPTH = 100
"""The deepest nesting of regions, with calls inlined: XLA recurses on threads with small stacks."""


def operations(function: Operation) -> Iterator[tuple[Operation, int]]:
    """Yields every operation of a function with its depth, outer ones first. Raises Refused if it is too deep."""
    within = [(function, 1)]
    while within:
        outer, depth = within.pop()
        if depth > MAX_DEPTH:
            raise Refused(f"has regions in regions, more than {MAX_DEPTH} deep")
        for region in outer.regions:
            blocks = list(region.blocks)
            if len(blocks) > 1:
                raise Refused(f"jumps between {len(blocks)} blocks of one {outer.name}")
            for inner in blocks[0].operations if blocks else ():
                operation = inner.operation
                yield operation, depth
                if len(operation.regions):
                    within.append((operation, depth + 1))
