"""Compiled code by content and devices, shared by all plans of a process."""

import contextlib
from collections.abc import Sequence

from pathways.runtime import pjrt
from pathways.runtime.callbacks import Watched


class Executables:
    """Compiles each module once; other devices of the same number take the code that is there."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[bytes | str, tuple[pjrt.Device, ...]], pjrt.Executable] = {}
        self._first: dict[tuple[bytes | str, int], pjrt.Executable] = {}
        self._calling: list[pjrt.Executable] = []
        """What calls back is never freed: a callback must not die while a device is in it."""

    def load(
        self, module: bytes | str, devices: Sequence[pjrt.Device], callbacks: Sequence[Watched] = ()
    ) -> pjrt.Executable:
        """Compiles, or takes the code that was compiled for as many other devices; what calls back is never shared."""
        if callbacks:
            self._calling.append(pjrt.compile_module(module, devices, callbacks))
            return self._calling[-1]
        key = module, tuple(devices)
        if key not in self._loaded:
            self._loaded[key] = self._make(*key)
        return self._loaded[key]

    def _make(self, module: bytes | str, devices: tuple[pjrt.Device, ...]) -> pjrt.Executable:
        first = self._first.get((module, len(devices)))
        if first is not None:
            with contextlib.suppress(*pjrt.FAILURES):  # a platform that cannot move code compiles it again
                return pjrt.reload(first, devices)
        made = pjrt.compile_module(module, devices)
        return self._first.setdefault((module, len(devices)), made)
