"""A pipelined loss whose stages run one after another on one device, to test the cut without placement."""

from collections.abc import Callable, Sequence
from typing import Any

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.pipeline import Pipelined


class Unplaced(Pipelined):
    """A pipelined loss that runs its stages as plain functions."""

    def _check_inside(self) -> None:
        """Skips the check: plain functions run outside of a program too."""

    def _copied(self, value: Any, sharding: Any) -> Any:
        return value

    def _placed(self, function: Callable[..., Any], shardings: Sequence[Any], given: Sequence[Any]) -> Any:
        return function(*given)


def unplaced(loss: Callable[..., Any], stages: int, **options: Any) -> Unplaced:
    """Returns `pw.pipeline(loss, slices, **options)` with this count of stages, to run on one device."""
    devices = pw.make_virtual_device_set()
    made = pw.pipeline(loss, [devices.add_slice(devices=1) for _ in range(stages)], **options)
    made.__class__ = Unplaced
    assert isinstance(made, Unplaced)
    return made
