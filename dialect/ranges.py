"""Devices as text that does not grow with their number: `0:2048`, `3,1,0`, `4:8,0:4`; stops are exclusive."""

from collections.abc import Sequence

LARGEST = 1 << 20
"""Devices that a text may stand for: a damaged or hostile one must not fill the memory."""


def write_ranges(devices: Sequence[int]) -> str:
    """Runs of ascending neighbors as `start:stop`."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and runs[-1][1] == device:
            runs[-1][1] += 1
        else:
            runs.append([device, device + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in runs)


def read_ranges(text: str) -> tuple[int, ...]:
    """The devices. Raises ValueError for what is not written so, or for more than `LARGEST`."""
    devices: list[int] = []
    for part in text.split(",") if text else ():
        start, colon, stop = part.partition(":")
        first = int(start)
        last = int(stop) if colon else first + 1
        if len(devices) + last - first > LARGEST:
            raise ValueError(f"more than {LARGEST} devices")
        devices.extend(range(first, last))
    return tuple(devices)
