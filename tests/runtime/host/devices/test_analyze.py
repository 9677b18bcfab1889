"""Tests on which devices computations are compiled to read their memory, without PJRT."""

from typing import Any

import pytest

from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.analyze import XlaAnalyzer


class Devices:
    """Devices of this host. `made` counts those of each new client, `used` the devices of each compilation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.used: list[list[str]] = []

        def make(count: int) -> list[str]:
            self.made.append(count)
            return [f"{len(self.made)}/{n}" for n in range(count)]

        def compile_module(module: bytes, devices: list[str]) -> int:
            self.used.append(devices)
            return 10 * len(devices)

        monkeypatch.setattr(pjrt, "make_devices", make)
        monkeypatch.setattr(pjrt, "host_devices", lambda: ["a", "b"])
        monkeypatch.setattr(pjrt, "compile_module", compile_module)
        monkeypatch.setattr(pjrt, "temporary_bytes", lambda executable: executable + 1)  # pyright: ignore


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    return Devices(monkeypatch)


def test_devices_are_made_only_when_a_computation_needs_more(devices: Devices) -> None:
    """Each device takes threads until the process ends."""
    analyzer = XlaAnalyzer("cpu")
    found = [analyzer.temporaries(module, count) for module, count in ((b"f", 2), (b"g", 2), (b"g", 1), (b"h", 3))]
    assert found == [21, 21, 11, 31] and devices.made == [2, 3]
    assert devices.used == [["1/0", "1/1"], ["1/0", "1/1"], ["1/0"], ["2/0", "2/1", "2/2"]]


def test_each_computation_is_compiled_once_for_each_number_of_devices(devices: Devices) -> None:
    analyzer = XlaAnalyzer("cpu")
    found: list[Any] = [analyzer.temporaries(b"f", count) for count in (2, 1, 2, 1)]
    assert found == [21, 11, 21, 11] and len(devices.used) == 2


def test_a_host_with_a_fixed_number_of_devices_may_have_too_few(devices: Devices) -> None:
    analyzer = XlaAnalyzer("tpu")
    assert [analyzer.temporaries(b"f", count) for count in (1, 2, 3)] == [11, 21, None]
    assert devices.used == [["a"], ["a", "b"]] and devices.made == []
