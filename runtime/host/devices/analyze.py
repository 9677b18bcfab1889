"""Compiles computations with XLA to read how much memory they need, without running them. The compiler calls it through
`pathways/api/process.py`, if this process has devices.
"""

from pathways.dialect.platforms import platform_named
from pathways.runtime.host.devices import pjrt


class XlaAnalyzer:
    """Compiles each computation once and reads its memory statistics."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self._known: dict[tuple[bytes, int], int | None] = {}
        self._made: list[pjrt.Device] = []

    def temporaries(self, module: bytes, devices: int) -> int | None:
        """Returns the bytes of temporaries on one device, without arguments and results.

        Returns None if this host has too few devices.
        """
        key = module, devices
        if key not in self._known:
            chosen = self._devices(devices)
            executable = None if chosen is None else pjrt.compile_module(module, chosen)
            self._known[key] = None if executable is None else pjrt.temporary_bytes(executable)
        return self._known[key]

    def _devices(self, count: int) -> list[pjrt.Device] | None:
        if platform_named(self.platform).made_at_will is not None:
            if count > len(self._made):
                self._made = pjrt.make_devices(count)
            return self._made[:count]
        devices = pjrt.host_devices()
        return devices[:count] if count <= len(devices) else None
