"""Starts threads, and reports an error if that fails. The whole runtime starts its threads here."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import NoThread

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ThreadPool(ThreadPoolExecutor):
    """An executor that raises PWC0521 if the process cannot start another thread."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)
        self._name = name

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        refused: list[PathwaysError] = []

        def work() -> _T:
            if refused:  # the pool has queued the work although it raised
                raise refused[0]
            return fn(*args, **kwargs)

        try:
            return super().submit(work)
        except RuntimeError as error:
            if "start new thread" not in str(error):  # the pool is shut down, for example
                raise
            refused.append(PathwaysError(no_thread(self._name)))
            raise refused[0] from None


def no_thread(name: str) -> NoThread:
    """Returns the error for a process that cannot start another thread."""
    return NoThread(thread=name, running=threading.active_count())


def start_thread(name: str, work: Callable[..., object], *arguments: Any) -> None:
    """Starts a daemon thread that runs `work`. Raises PWC0521 if the process cannot start another thread."""
    if not started(threading.Thread(target=work, args=arguments, name=name, daemon=True)):
        raise PathwaysError(no_thread(name))


def started(thread: threading.Thread) -> bool:
    """Starts a thread; returns False on failure: in Python 3.12 after the main thread ended, or if memory is exhausted.

    The caller must then do the thread's work itself, or skip it.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
