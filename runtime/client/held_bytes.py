"""Bytes that this process holds on the devices of a cluster, until its controller is told."""

import contextlib
from collections import Counter, deque


class HeldBytes:
    """What is held since that was last told; any thread may add to it, also while it collects garbage."""

    def __init__(self) -> None:
        self._added: deque[tuple[int, int]] = deque()

    def add(self, device: int, size: int) -> None:
        self._added.append((device, size))

    def take(self) -> tuple[int, ...]:
        """The numbers of devices, and bytes, in pairs."""
        held: Counter[int] = Counter()
        with contextlib.suppress(IndexError):
            while True:
                device, size = self._added.popleft()
                held[device] += size
        return tuple(n for device, size in held.items() if size for n in (device, size))
