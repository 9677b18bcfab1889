"""Which run goes next on an island. Pure: no clock, no threads, no devices. One policy a file."""

from collections.abc import Callable

from pathways.runtime.control.scheduling.fifo import Fifo
from pathways.runtime.control.scheduling.request import Request as Request
from pathways.runtime.control.scheduling.request import SchedulingPolicy as SchedulingPolicy
from pathways.runtime.control.scheduling.stride import Stride

STRIDE = "stride"
"""The policy where none is asked for."""

SCHEDULING_POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {"fifo": Fifo, STRIDE: Stride}
"""The policies by name."""
