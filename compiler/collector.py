"""Pauses Python's cyclic garbage collector during compilation, and during other short tasks that allocate many objects.
This makes compilation of large programs faster.

Almost every object that the compiler creates stays alive until the compiler finishes.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None, None, None]:
    """Disables the search for cycles, which takes 1/6 of the compile time of a large program and finds nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
