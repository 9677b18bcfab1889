"""Who goes next on an island. Pure: no clock, no threads, no devices. One policy a file."""

from collections.abc import Callable

from pathways.runtime.control.scheduling.fifo import Fifo
from pathways.runtime.control.scheduling.request import Policy as Policy
from pathways.runtime.control.scheduling.request import Request as Request
from pathways.runtime.control.scheduling.stride import Stride

STRIDE = "stride"
"""The policy of a process that nobody told otherwise."""

POLICIES: dict[str, Callable[[], Policy]] = {"fifo": Fifo, STRIDE: Stride}
"""The policies by name."""
