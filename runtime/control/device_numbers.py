"""Numbers the devices of a cluster. Clients use the numbers when they report how much memory their runs and arrays take
on each device. The dispatcher reads the reports with it.
"""

from collections.abc import Container, Hashable, Sequence

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage


class DeviceNumbers:
    """The devices of a cluster by number, each as an island's name and a position."""

    def __init__(self) -> None:
        self._devices: list[tuple[str, int]] = []

    def add(self, island: str, size: int) -> int:
        """Numbers the devices of an added island, unless it had as many devices before; returns the first number.

        If the island returns with another size, its old numbers stay valid but map to no device, because clients may
        still free arrays there.
        """
        numbers = [number for number, (name, _) in enumerate(self._devices) if name == island]
        if len(numbers) != size:
            for number in numbers:
                self._devices[number] = ("", number)
            numbers = [len(self._devices)]
            self._devices += [(island, at) for at in range(size)]
        return numbers[0]

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, number: int) -> tuple[str, int]:
        return self._devices[number]

    def number(self, device: Hashable) -> int:
        return next(number for number, one in enumerate(self._devices) if one == device)

    def pairs(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Returns pairs of device number and bytes. Raises PWC0911 for an unknown device or an odd count."""
        if len(numbers) % 2 or not all(0 <= number < len(self._devices) for number in numbers[::2]):
            raise PathwaysError(BadMessage(have_=f"{len(numbers)} numbers", rule="pairs of a known device and bytes"))
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def memory(
        self, numbers: Sequence[int], islands: Container[str], limited: Container[Hashable]
    ) -> dict[Hashable, int]:
        """Returns the bytes of devices that have a limit. Raises PWC0911 for devices of other islands."""
        if not numbers:
            return {}
        found = {self._devices[number]: max(size, 0) for number, size in self.pairs(numbers)}
        if not all(island in islands for island, _ in found):
            raise PathwaysError(BadMessage(have_="memory on islands that the run does not use", rule="its devices"))
        return {device: size for device, size in found.items() if device in limited}
