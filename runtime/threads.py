"""Starting threads, where the interpreter still does."""

import threading


def started(thread: threading.Thread) -> bool:
    """Starts a thread; False where none can be: in Python 3.12 when the main thread has ended, or for want of memory.

    What the thread was to do is then to be done by this one, or not at all.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
