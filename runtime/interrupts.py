"""Delays Ctrl-C until an update of shared state is complete. Otherwise the interrupt could leave a lock held or a count
wrong. The whole runtime marks critical functions with the decorator `uninterrupted`.

Python may raise KeyboardInterrupt between any two instructions of the main thread. An interrupt inside a scheduler
event or a reference count update leaves a lock held or a queue slot occupied, and blocks every client. The API installs
the handler.
"""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
RERAISE_DELAY_S = 1e-3
"""Delay before a held-back interrupt is raised again."""
SIGNAL_POLL_INTERVAL_S = 0.5
"""Interval at which an unlimited wait returns to Python, which then handles a signal that arrived just before."""
_CODES: set[CodeType] = set()
_DROPPING = ("__del__", "_xla_gc_callback")
"""Destructors, and functions that JAX registers with the garbage collector. Python drops exceptions raised there."""


def uninterrupted(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Marks a function that Ctrl-C must not interrupt. The function must never block. A call has no extra cost."""
    _CODES.add(function.__code__)
    return function


def install() -> None:
    """Installs a handler that delays Ctrl-C while an `uninterrupted` function is on the main thread's stack.

    Keeps a handler that the user has installed. Does nothing in threads other than the main thread.
    """
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)
        sys.unraisablehook = _Unraisable(sys.unraisablehook)


class _Unraisable:
    """Raises an interrupt again that Python dropped, for example in a destructor or a garbage collector callback."""

    def __init__(self, before: Callable[["sys.UnraisableHookArgs"], object]) -> None:
        self._before = before

    def __call__(self, dropped: "sys.UnraisableHookArgs", /) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            _thread.start_new_thread(_again, ())
        else:
            self._before(dropped)


def wait_without_end(wait: Callable[[float], bool]) -> None:
    """Waits without a time limit; Ctrl-C ends the wait. `wait` blocks for the given seconds and returns True when done.

    A signal may arrive while the main thread waits for the GIL, just before it blocks on a lock. Such a signal does not
    end the lock's wait, and Python handles signals only after that wait. Hence the wait is split into short ones.
    """
    while not wait(SIGNAL_POLL_INTERVAL_S):
        continue


def ignore() -> None:
    """Disables Ctrl-C because the process is terminating anyway."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _handle(number: int, frame: FrameType | None) -> None:
    inner = frame
    while inner is not None:
        if inner.f_code in _CODES or inner.f_code.co_name in _DROPPING:
            _thread.start_new_thread(_again, ())  # a Thread would take locks that the main thread may hold
            return
        inner = inner.f_back
    signal.default_int_handler(number, frame)


def _again() -> None:
    time.sleep(RERAISE_DELAY_S)
    main = threading.main_thread().ident
    if sys.platform != "win32" and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # a real signal also ends a sleep of the main thread
    else:
        _thread.interrupt_main()
