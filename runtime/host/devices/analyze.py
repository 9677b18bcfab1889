"""What executables need, asked of XLA on the devices at hand: the compiler's Analyzer."""

from pathways.runtime.host.devices import pjrt


class XlaAnalyzer:
    """Compiles a computation and reads its memory statistics; each computation once."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self._known: dict[tuple[bytes, int], int | None] = {}
        self._cpu: list[pjrt.Device] = []

    def temporaries(self, module: bytes, devices: int) -> int | None:
        """Bytes on one device beside arguments and results; None where this host has too few devices."""
        key = module, devices
        if key not in self._known:
            chosen = self._devices(devices)
            executable = None if chosen is None else pjrt.compile_module(module, chosen)
            self._known[key] = None if executable is None else pjrt.temporary_bytes(executable)
        return self._known[key]

    def _devices(self, count: int) -> list[pjrt.Device] | None:
        if self.platform == "cpu":
            if count > len(self._cpu):
                self._cpu = pjrt.make_cpu_devices(count)
            return self._cpu[:count]
        devices = pjrt.host_devices()
        return devices[:count] if count <= len(devices) else None
