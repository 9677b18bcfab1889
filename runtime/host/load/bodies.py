"""Loads the bodies of a plan's loops and branches, and copies constants to the devices that use them. `loaded_part.py`
calls it when a plan is loaded.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.instructions import Branch, Run
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.plan.part import PlanPart
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.layouts import Sides, put_on_side
from pathways.runtime.host.load.edges import Edges
from pathways.runtime.host.load.steps import Preparer, offsets_of
from pathways.runtime.host.load.waves import defer
from pathways.runtime.host.run.control_flow import LoadedBody


def load_bodies(
    part: PlanPart,
    sides: Sides,
    executables: Executables,
    *,
    sequential: bool,
    edges_of: Callable[[int], Edges | None] = lambda _: None,
) -> list[LoadedBody]:
    """Loads this host's partition of every body. `edges_of` returns the edges of a body between hosts, if any."""
    loaded: list[LoadedBody] = []
    for number, own in enumerate(part.bodies):
        body = part.plan.of_body(number)
        prepared = Preparer(body, sides, executables, loaded, edges_of(number), number)
        waves = prepared.prepare(defer(body, own.order, everything=sequential, received=own.received))
        offsets = prepared.offsets

        def slot(port: Port, offsets: dict[str, int] = offsets) -> int:
            return offsets[port.island] + port.slot if port.slot >= 0 and port.island in offsets else -1

        inputs, results = ([slot(p) for p in ports] for ports in (body.inputs, body.results))
        constants = put_constants(body, sides)
        overwritten_slots = _overwritten(body, offsets)
        overwritten = frozenset(i for i, index in enumerate(inputs) if index in overwritten_slots)
        loaded.append(LoadedBody(waves, prepared.launches, prepared.size, inputs, results, constants, overwritten))
    return loaded


def _overwritten(plan: Plan, offsets: Mapping[str, int]) -> set[int]:
    """Finds the slots that are donated to a computation or a loop."""
    return {
        offsets[stream.island] + slot
        for stream in plan.streams
        for instruction in stream.instructions
        if isinstance(instruction, Run | Branch)
        for slot in instruction.effects[2]
    }


def put_constants(plan: Plan, sides: Sides) -> list[tuple[int, Any]]:
    """Puts a plan's constants on devices; returns (slot, array) pairs."""
    held: list[tuple[int, Any]] = []
    offsets = offsets_of(plan)
    for constant in plan.constant_buffers:
        buffer = plan.stream(constant.island).kind_of[constant.slot]
        raw = plan.constants[constant.member]
        host = np.frombuffer(raw, numpy_dtype(buffer.type.dtype)).reshape(buffer.type.shape)
        held.append((offsets[constant.island] + constant.slot, put_on_side(host, buffer.type, sides.of(buffer.layout))))
    return held
