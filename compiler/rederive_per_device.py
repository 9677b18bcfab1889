"""Derives the one-device modules of a loaded plan again, from its checked modules for several devices, if another user
wrote the plan. Its own one-device modules could contain anything, so they are not used. `pathways/api/stages.py` calls
it when it loads a plan.
"""

from dataclasses import replace

from pathways.compiler.computations.localize import localize
from pathways.compiler.export import written
from pathways.dialect.mlir import from_portable
from pathways.dialect.plan.nouns import Computation, Plan


def with_local_modules(plan: Plan) -> Plan:
    """Returns the plan with a one-device module for each computation whose devices need nothing of each other.

    The modules of the plan must have been checked (dialect/plan/check_modules.py).
    """
    return replace(plan, computations=tuple(replace(c, local=_local(c)) for c in plan.computations))


def _local(computation: Computation) -> bytes:
    module = from_portable(computation.module)
    with module.context:
        try:
            per_device = localize(module.operation, computation.axes, computation.in_layouts, computation.out_layouts)
        except (AttributeError, LookupError, TypeError, ValueError):
            return b""  # not from JAX: its devices start together, which is correct for every module
        return b"" if per_device is None else written(per_device.operation)
