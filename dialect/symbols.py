"""Makes a symbol name for an MLIR module that is not used there yet. Front ends and emitters call it when they add
functions or modules.
"""

from collections.abc import Callable


def free_symbol(name: str, is_taken: Callable[[str], bool]) -> str:
    """Returns the first of `name`, `name_1`, `name_2`, ... that is not taken."""
    found, number = name, 0
    while is_taken(found):
        number += 1
        found = f"{name}_{number}"
    return found
