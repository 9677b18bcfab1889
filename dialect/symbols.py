"""Makes unique symbol names for MLIR modules. The front ends and the emitters call it."""

from collections.abc import Callable


def free_symbol(name: str, is_taken: Callable[[str], bool]) -> str:
    """Returns the first of `name`, `name_1`, `name_2`, ... that is not taken."""
    found, number = name, 0
    while is_taken(found):
        number += 1
        found = f"{name}_{number}"
    return found
