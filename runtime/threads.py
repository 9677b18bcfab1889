"""Starting threads, also where the interpreter may refuse."""

import threading


def started(thread: threading.Thread) -> bool:
    """Starts a thread; returns False where that fails: in Python 3.12 after the main thread ended, or without memory.

    The caller must then do the work of the thread itself, or leave it undone.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
