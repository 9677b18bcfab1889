"""Bytes that this process holds on the devices of a cluster, until its controller is told."""

import contextlib
from collections import Counter, deque
from itertools import chain


class HeldBytes:
    """What is held since that was last told; any thread may add to it, also while it collects garbage."""

    def __init__(self) -> None:
        self._added: deque[tuple[str, int, int]] = deque()

    def add(self, client: str, device: int, size: int) -> None:
        self._added.append((client, device, size))

    def take(self) -> dict[str, tuple[int, ...]]:
        """By client inside of the process: the numbers of devices, and bytes, in pairs."""
        if not self._added:
            return {}
        held: dict[str, Counter[int]] = {}
        with contextlib.suppress(IndexError):
            while True:
                client, device, size = self._added.popleft()
                held.setdefault(client, Counter())[device] += size
        pairs = {client: [(device, size) for device, size in of.items() if size] for client, of in held.items()}
        return {client: tuple(chain.from_iterable(found)) for client, found in pairs.items() if found}
