"""Symbols of MLIR modules: names that nothing else has."""

from collections.abc import Callable


def free_symbol(name: str, is_taken: Callable[[str], bool]) -> str:
    """`name`, or `name_1`, `name_2`, ...: the first that is not taken."""
    found, number = name, 0
    while is_taken(found):
        number += 1
        found = f"{name}_{number}"
    return found
