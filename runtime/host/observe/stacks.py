"""Where all threads of this process are, as text: what Python shows of each, the innermost call last."""

import sys
import threading
import traceback


def stacks() -> str:
    """Says where each thread is at this moment."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: list[str] = []
    for number, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        lines = "".join(traceback.format_stack(frame)[-8:]).rstrip()
        found.append(f"{names.get(number, number)}\n{lines}")
    return "\n".join(sorted(found))
