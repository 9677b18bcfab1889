"""Implements the scheduling policy `fifo`: runs start in the order in which clients submit them."""

from typing import ClassVar

from pathways.runtime.control.scheduling.request import Request


class Fifo:
    """Ranks runs in the order in which they were submitted; ignores weights."""

    name: ClassVar[str] = "fifo"

    def rank(self, request: Request) -> tuple[float, int]:
        return 0.0, request.number

    def submitted(self, request: Request) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...
