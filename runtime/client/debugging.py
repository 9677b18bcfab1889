"""Runs a plan while JAX's debugging settings are on: transfer guards, `jax_debug_nans` and `jax_debug_infs`.
`pathways/api/stages.py` calls it for each run with such a setting.

A transfer guard covers arguments, which a call moves implicitly. Transfers inside a program are explicit. NaN and
infinity are checked step by step (host/observe/numbers.py), also on the hosts of a cluster.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import (
    debug_infs,
    debug_nans,
    transfer_guard,
    transfer_guard_device_to_device,
    transfer_guard_host_to_device,
)
from pathways.dialect.user_line import caller
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.inputs import handle_of
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.errors import GuardedTransfer
from pathways.runtime.host.observe.numbers import INFS, NANS, Numbers

_REFUSES = ("disallow", "disallow_explicit")


def is_requested() -> bool:
    """Whether any of these settings is on in this thread. Every run calls it."""
    return bool(
        debug_nans.value
        or debug_infs.value
        or transfer_guard_host_to_device.value
        or transfer_guard_device_to_device.value
    )


def run_debugged(loaded: LoadedPlan, arguments: Sequence[Any]) -> list[Handle]:
    """Runs a plan under these settings.

    Raises the same errors as `LoadedPlan.run`, PWC0210 for an argument that must not be moved, and PWC0211 for a result
    that is not a number. PWC0211 is also a FloatingPointError.
    """
    levels = {_HOST: transfer_guard_host_to_device.value, _DEVICE: transfer_guard_device_to_device.value}
    for name, source in _moved(loaded, arguments):
        if levels[source] in _REFUSES:
            level: str = levels[source]
            raise PathwaysError(
                GuardedTransfer(name=name, program=loaded.plan.name, source=source, level=level, where=caller())
            )
    wanted = NANS * bool(debug_nans.value) | INFS * bool(debug_infs.value)
    watching = (Numbers(wanted),) if wanted else ()
    if any(level in _REFUSES for level in levels.values()):
        with transfer_guard("allow"):
            return loaded.run(arguments, watching)
    return loaded.run(arguments, watching)


_HOST, _DEVICE = "the host", "other devices"


def _moved(loaded: LoadedPlan, arguments: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yields the name and location of each argument that is not where the plan needs it."""
    for wanted, value in zip(loaded.inputs, arguments, strict=True):
        if wanted is None:
            continue
        handle = handle_of(value)
        if handle is None:
            yield wanted.port.name, _DEVICE if isinstance(value, jax.Array) else _HOST
        elif not wanted.is_in_place(handle.buffer):
            yield wanted.port.name, _DEVICE
