"""Ctrl-C, held back where it would break something: code that is half way through an update finishes first.

Python may raise KeyboardInterrupt between any two instructions of the main thread. In the middle of an event of the
scheduler, or of counting handles, that would leave a lock held or a turn never given back, and every client waiting.
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
MOMENT = 1e-3
"""Seconds after which an interrupt that was held back is raised again."""
LOOKS_FOR_SIGNALS = 0.5
"""Seconds after which a wait without end lets Python see a signal that came just before it."""
_CODES: set[CodeType] = set()
_DROPPING = ("__del__", "_xla_gc_callback")
"""Destructors, and functions that JAX has the garbage collector call: Python drops exceptions raised there."""


def uninterrupted(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Marks a function that Ctrl-C must not interrupt; it must never wait. Costs nothing when it is called."""
    _CODES.add(function.__code__)
    return function


def install() -> None:
    """Installs a handler that holds Ctrl-C back while an `uninterrupted` function is on the main thread's stack.

    Leaves a handler of the user's own alone, and does nothing in other threads than the main one.
    """
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)
        sys.unraisablehook = _Unraisable(sys.unraisablehook)


class _Unraisable:
    """Raises an interrupt again that Python dropped: in a destructor, say, or a call of the garbage collector."""

    def __init__(self, before: Callable[["sys.UnraisableHookArgs"], object]) -> None:
        self._before = before

    def __call__(self, dropped: "sys.UnraisableHookArgs", /) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            _thread.start_new_thread(_again, ())
        else:
            self._before(dropped)


def wait_without_end(wait: Callable[[float], bool]) -> None:
    """Waits, however long that takes; Ctrl-C ends it. `wait` waits for so many seconds, and says whether it is over.

    A signal that comes while the main thread waits for its turn to run Python, just before it waits for a lock, does
    not end the lock's own wait, and Python looks for signals only behind that.
    """
    while not wait(LOOKS_FOR_SIGNALS):
        continue


def ignore() -> None:
    """Turns Ctrl-C off: the process is ending anyway."""
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
    time.sleep(MOMENT)
    main = threading.main_thread().ident
    if sys.platform != "win32" and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # a real signal also ends a sleep of the main thread
    else:
        _thread.interrupt_main()
