"""Checks the results of each computation of a run for NaN and infinity. It is used only if `jax_debug_nans` or
`jax_debug_infs` is on. In a client it raises an error; on a host it also stops later computations.

The observers here wait for each step, so that the error names the first computation that makes one.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import dtypes
from pathways.dialect.plan.instructions import Run
from pathways.runtime.errors import NotANumber
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.runs_in_flight import Flight

NANS, INFS = 1, 2
"""Bits of the values to search for."""


class NumberError(PathwaysError, FloatingPointError):
    """The error of a computation that made NaN or infinity; also a FloatingPointError, which JAX raises for it."""


@dataclass(eq=False)
class Numbers(Observer):
    """An observer that waits for the results of each step, and checks them for NaN and infinity."""

    wanted: int
    is_whole_here: bool = field(default=True, init=False)
    """Whether all of an array is in this process."""

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        """Raises PWC0211 if a result of the step holds NaN or infinity, and the settings forbid it."""
        if (found := self.check(step, frame)) is not None:
            raise NumberError(found)

    def check(self, step: Step, frame: Frame) -> NotANumber | None:
        """Waits for the results of a step; returns a diagnostic if one of them holds a forbidden value."""
        instruction = step.instruction
        if not isinstance(instruction, Run):
            return None
        for number, index in enumerate(step.outputs):
            value = frame.values[index]
            if not isinstance(value, Poison) and (have := self._found(value)):
                names = ", ".join(read_part(part).name for part in instruction.parts)
                return NotANumber(
                    computation=instruction.name + (f" (merged of {names})" if names else ""),
                    island=step.island.key,
                    have_=f"{have} of result {number}",
                    setting="jax.debug_nans" if self.wanted & NANS else "jax.debug_infs",
                    where=instruction.where,
                )
        return None

    def _found(self, value: Any) -> str:
        """Describes the forbidden numbers in a value. Empty if its computation failed: its readers see that failure."""
        parts = value if isinstance(value, Shards) else [value]
        for shard in parts if self.is_whole_here else [s for part in parts for s in pjrt.shards_of(part)]:
            if not dtypes.issubdtype(shard.dtype, np.inexact):
                continue
            try:
                host: np.ndarray[Any, Any] = pjrt.to_host(shard)
            except pjrt.FAILURES:
                return ""
            for bit, name, count in ((NANS, "NaN", np.isnan), (INFS, "infinity", np.isinf)):
                if self.wanted & bit and (bad := int(count(host).sum())):
                    return f"{name} in {bad} of {host.size} values"
        return ""


@dataclass(eq=False)
class NumbersOnHost(Numbers):
    """As Numbers, for one run on a host. Results with a forbidden value become poison, and no later computation starts.
    Other hosts that wait for values of this host receive the reason in their place. If other hosts share the island
    (`is_whole_here` is not set), later computations start: those hosts may have found nothing, and a collective would
    wait."""

    step: int = 0
    found: NotANumber | None = None

    def before_step(self, flight: Flight, step: Step, frame: Frame) -> Poison | None:
        stops = self.is_whole_here and isinstance(step.instruction, Run)
        return Poison(self.found) if self.found is not None and stops else None

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        if self.found is None and (found := self.check(step, frame)) is not None:
            self.step, self.found = step.instruction.step, found
            for index in step.outputs if self.is_whole_here else ():
                frame.values[index] = Poison(found)
