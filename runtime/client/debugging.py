"""JAX's settings for finding faults, as runs honor them: transfer guards, debug_nans and debug_infs.

A transfer guard is about arguments, which a call moves without being told to; the transfers of a program are explicit.
NaN and infinity are looked for step by step, each step waited for, so that the first computation that makes one is
named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import (
    debug_infs,
    debug_nans,
    dtypes,
    transfer_guard,
    transfer_guard_device_to_device,
    transfer_guard_host_to_device,
)
from pathways.dialect.plan.instructions import Run
from pathways.dialect.user_line import caller
from pathways.runtime.client.inputs import handle_of
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.errors import GuardedTransfer, NotANumber
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.runs_in_flight import Flight
from pathways.runtime.host.run.store import Handle, Poison

_REFUSES = ("disallow", "disallow_explicit")


class NumberError(PathwaysError, FloatingPointError):
    """A computation made NaN or infinity; also a FloatingPointError, which JAX raises for it."""


def asked() -> bool:
    """Returns whether any of these settings is on in this thread; every run asks."""
    return bool(
        debug_nans.value
        or debug_infs.value
        or transfer_guard_host_to_device.value
        or transfer_guard_device_to_device.value
    )


def run_debugged(loaded: LoadedPlan, arguments: Sequence[Any]) -> list[Handle]:
    """Runs a plan under these settings. Raises as `LoadedPlan.run`, PWC0210 for an argument that must not be moved,
    PWC0211 (which is a FloatingPointError, too) for a result that is not a number."""
    levels = {_HOST: transfer_guard_host_to_device.value, _DEVICE: transfer_guard_device_to_device.value}
    for name, source in _moved(loaded, arguments):
        if levels[source] in _REFUSES:
            level: str = levels[source]
            raise PathwaysError(
                GuardedTransfer(name=name, program=loaded.plan.name, source=source, level=level, where=caller())
            )
    watching = (Numbers(debug_nans.value, debug_infs.value),) if debug_nans.value or debug_infs.value else ()
    if any(level in _REFUSES for level in levels.values()):
        with transfer_guard("allow"):
            return loaded.run(arguments, watching)
    return loaded.run(arguments, watching)


_HOST, _DEVICE = "the host", "other devices"


def _moved(loaded: LoadedPlan, arguments: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Finds the arguments that are not where the plan wants them, and where they are."""
    for wanted, value in zip(loaded.inputs, arguments, strict=True):
        if wanted is None:
            continue
        handle = handle_of(value)
        if handle is None:
            yield wanted.port.name, _DEVICE if isinstance(value, jax.Array) else _HOST
        elif not wanted.is_in_place(handle.buffer):
            yield wanted.port.name, _DEVICE


@dataclass(frozen=True)
class Numbers(Observer):
    """An observer that waits for the results of each step and looks for NaN and infinity in them."""

    nans: bool
    infs: bool

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        """Raises PWC0211 where a result of the step holds NaN or infinity, as the settings ask."""
        instruction = step.instruction
        if not isinstance(instruction, Run):
            return
        for number, index in enumerate(step.outputs):
            value = frame.values[index]
            if not isinstance(value, Poison) and (have := self._found(value)):
                names = ", ".join(read_part(part).name for part in instruction.parts)
                raise NumberError(
                    NotANumber(
                        computation=instruction.name + (f" (merged of {names})" if names else ""),
                        island=step.island.key,
                        have_=f"{have} of result {number}",
                        setting="jax.debug_nans" if self.nans else "jax.debug_infs",
                        where=instruction.where,
                    )
                )

    def _found(self, value: Any) -> str:
        """Names what a value holds that it must not; nothing where its computation failed, which its readers see."""
        for shard in value if isinstance(value, Shards) else [value]:
            if not dtypes.issubdtype(shard.dtype, np.inexact):
                continue
            try:
                host: np.ndarray[Any, Any] = pjrt.to_host(shard)
            except pjrt.FAILURES:
                return ""
            for wanted, name, count in ((self.nans, "NaN", np.isnan), (self.infs, "infinity", np.isinf)):
                if wanted and (bad := int(count(host).sum())):
                    return f"{name} in {bad} of {host.size} values"
        return ""
