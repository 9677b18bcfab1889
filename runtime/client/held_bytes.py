"""Bytes that this process holds on the devices of a cluster, until its controller is told."""

import contextlib
from collections import Counter, deque
from itertools import chain


class HeldBytes:
    """What is held since that was last told; any thread may add to it, also while it collects garbage."""

    def __init__(self) -> None:
        self._added: deque[tuple[tuple[str, int], int, int]] = deque()

    def add(self, client: str, run: int, device: int, size: int) -> None:
        self._added.append(((client, run), device, size))

    def take(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """By client inside of the process, and run: the numbers of devices, and bytes, in pairs."""
        if not self._added:
            return {}
        held: dict[tuple[str, int], Counter[int]] = {}
        with contextlib.suppress(IndexError):
            while True:
                of, device, size = self._added.popleft()
                held.setdefault(of, Counter())[device] += size
        pairs = {of: [(device, size) for device, size in sizes.items() if size] for of, sizes in held.items()}
        return {of: tuple(chain.from_iterable(found)) for of, found in pairs.items() if found}
