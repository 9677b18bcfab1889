"""Starting threads, also where the interpreter may refuse."""

import threading
from collections.abc import Callable
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import NoThread


def start_thread(name: str, work: Callable[..., object], *arguments: Any) -> None:
    """Starts a daemon thread that does `work`. Raises PWC0521 where the process can have no more threads."""
    if not started(threading.Thread(target=work, args=arguments, name=name, daemon=True)):
        raise PathwaysError(NoThread(thread=name, running=threading.active_count()))


def started(thread: threading.Thread) -> bool:
    """Starts a thread; returns False where that fails: in Python 3.12 after the main thread ended, or without memory.

    The caller must then do the work of the thread itself, or leave it undone.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
