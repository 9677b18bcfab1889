"""Formats a list of device numbers as short text, such as `0:2048` or `3,1,0`, and parses it. IR and plans store
devices in this form, which keeps them small for many devices.

The stop of a range is exclusive, as in Python.
"""

import re
from collections.abc import Sequence

LARGEST_RANGE = 1 << 20
"""The most devices in one text: a damaged or hostile text must not fill the memory."""
MAX_DEVICES_NAMED = 1 << 20
"""The most devices in all texts of one plan together. That is enough: slices are disjoint, and meshes lie on slices."""
_PART = re.compile(r"([0-9]{1,7})(?::([0-9]{1,7}))?")


def write_ranges(devices: Sequence[int]) -> str:
    """Formats devices; runs of consecutive ascending numbers become `start:stop`."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and runs[-1][1] == device:
            runs[-1][1] += 1
        else:
            runs.append([device, device + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in runs)


def read_ranges(text: str) -> tuple[int, ...]:
    """Parses devices. Raises ValueError for other text, or for more than `LARGEST_RANGE` devices."""
    devices: list[int] = []
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:80]!r} is not a range of devices")
        first = int(match[1])
        last = int(match[2]) if match[2] else first + 1
        if len(devices) + last - first > LARGEST_RANGE:
            raise ValueError(f"more than {LARGEST_RANGE} devices")
        devices.extend(range(first, last))
    return tuple(devices)


class RangeReader:
    """Parses all ranges of one plan: equal ranges share a tuple, and the total is at most `MAX_DEVICES_NAMED`."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...]] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._count = 0

    def read(self, text: str) -> tuple[int, ...]:
        """Parses devices. Raises ValueError as `read_ranges` does, and if the total exceeds the limit."""
        if text not in self._known:
            devices = read_ranges(text)
            self._known[text] = self._tuples.setdefault(devices, devices)
        found = self._known[text]
        self._count += len(found)
        if self._count > MAX_DEVICES_NAMED:
            raise ValueError(f"slices and meshes of more than {MAX_DEVICES_NAMED} devices in all")
        return found
