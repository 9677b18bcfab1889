"""A pipelined loss whose stages run one behind the other on one device: what the cut alone does."""

from collections.abc import Callable, Sequence
from typing import Any

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.pipeline import Pipelined


class Unplaced(Pipelined):
    """Runs stages as plain functions."""

    def _check_inside(self) -> None:
        """It runs anywhere."""

    def _copied(self, value: Any, sharding: Any) -> Any:
        return value

    def _placed(self, function: Callable[..., Any], shardings: Sequence[Any], given: Sequence[Any]) -> Any:
        return function(*given)


def unplaced(loss: Callable[..., Any], stages: int, **options: Any) -> Unplaced:
    """`pw.pipeline(loss, <so many slices>, **options)`, for one device."""
    devices = pw.make_virtual_device_set()
    made = pw.pipeline(loss, [devices.add_slice(devices=1) for _ in range(stages)], **options)
    made.__class__ = Unplaced
    assert isinstance(made, Unplaced)
    return made
