"""Imports libraries that are slow to import when they are first used. The compiler and the files of arrays call it."""

import signal
import sys
import threading
from importlib import import_module
from typing import Any


def import_late(name: str) -> Any:
    """Imports a module. Ctrl-C during the import takes effect right after it.

    An interrupt could leave a library loaded in part, and no later import would complete it (networkx 3.5).
    """
    before = signal.getsignal(signal.SIGINT)
    if name in sys.modules or before is None or threading.current_thread() is not threading.main_thread():
        return import_module(name)
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        return import_module(name)
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)
