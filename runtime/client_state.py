"""Holds the state of a client, which is one of several users of the same devices: its name, its weight, and whether it
is closed or suspended. The runtime checks the state before each run.

`pw.Client` creates the states.
"""

import contextvars
import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

_numbers = itertools.count()
MAX_LABEL_CHARS = 256
"""Longer names are cut, so that the number of the client stays part of its label."""


@dataclass(eq=False)
class ClientState:
    """One client. Two clients may have the same name; `label` distinguishes them."""

    name: str
    weight: float = 1.0
    number: int = field(default_factory=lambda: next(_numbers))
    closed: bool = False
    suspended: bool = False
    kept: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)
    """Values of the client's buffers while the client is suspended (suspend.py)."""
    entered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def forget_kept(self) -> None:
        """Drops the values that were saved while the client was suspended."""
        kept, self.kept = self.kept, {}
        for one in kept.values():
            one.forget()

    @property
    def label(self) -> str:
        return f"{self.name[:MAX_LABEL_CHARS]}#{self.number}" if self.number else self.name


MAIN = ClientState("main")
"""The client of calls made outside any `with pw.Client(...)`."""

current_client: contextvars.ContextVar[ClientState] = contextvars.ContextVar("pathways_client", default=MAIN)
