"""Counts the bytes that clients hold, and that running programs have reserved, on devices with a memory limit. The
scheduler starts a run only if its memory is free.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Bytes by device. Devices without a limit are not counted."""

    limits: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    held: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """Bytes that clients' handles hold after the runs that made the arrays."""
    reserved: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """Bytes reserved by runs in progress."""

    def limit(self, device: Hashable, size: int) -> None:
        self.limits[device] = size
        self.held.setdefault(device, 0)
        self.reserved.setdefault(device, 0)

    def free(self, device: Hashable) -> int:
        return self.limits[device] - self.held[device] - self.reserved[device]

    def fits(self, wanted: Mapping[Hashable, int]) -> bool:
        return all(device not in self.limits or size <= self.free(device) for device, size in wanted.items())

    def short_of(self, wanted: Mapping[Hashable, int]) -> Hashable | None:
        """Returns the device that lacks most memory, None if all requests fit."""
        limited = {d: size for d, size in wanted.items() if d in self.limits}
        lacking = {d: size - self.free(d) for d, size in limited.items() if size > self.free(d)}
        return max(lacking, key=lambda d: lacking[d]) if lacking else None

    def reserve(self, wanted: Mapping[Hashable, int], sign: int = 1) -> None:
        for device, size in wanted.items():
            self.reserved[device] += sign * size

    def hold(self, devices: tuple[Hashable, ...], size: int) -> None:
        """Adds `size` bytes to the held bytes of each device; negative if a handle was dropped."""
        for device in devices:
            if device in self.limits:
                self.held[device] += size
