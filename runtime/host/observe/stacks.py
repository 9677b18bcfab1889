"""Formats the Python stack of every thread of this process. A host sends it when `pwc stack` asks for it."""

import sys
import threading
import traceback


def stacks() -> str:
    """Returns the last 8 calls of each thread at this moment, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: list[str] = []
    for number, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        lines = "".join(traceback.format_stack(frame)[-8:]).rstrip()
        found.append(f"{names.get(number, number)}\n{lines}")
    return "\n".join(sorted(found))
