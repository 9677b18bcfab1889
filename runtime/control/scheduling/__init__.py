"""Holds the scheduler and its policies, which decide whose run is next on an island. They use no clock, threads or
devices, so they can be tested alone.

The scheduler calls the policies. Each policy has its own file.
"""

from collections.abc import Callable

from pathways.runtime.control.scheduling.fifo import Fifo
from pathways.runtime.control.scheduling.request import Cost as Cost
from pathways.runtime.control.scheduling.request import Request as Request
from pathways.runtime.control.scheduling.request import SchedulingPolicy as SchedulingPolicy
from pathways.runtime.control.scheduling.stride import Stride

STRIDE = "stride"
"""The default policy."""

SCHEDULING_POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {"fifo": Fifo, STRIDE: Stride}
"""The built-in policies by name."""
