"""The modules for one device of a plan from elsewhere, derived anew: what they do, only the whole ones say."""

from dataclasses import replace

from pathways.compiler.computations.localize import localize
from pathways.compiler.export import written
from pathways.dialect.mlir import from_portable
from pathways.dialect.plan.nouns import Computation, Plan


def with_local_modules(plan: Plan) -> Plan:
    """The plan with a module for one device wherever its devices need nothing of each other.

    Its modules must have been checked (dialect/plan/check_modules.py).
    """
    return replace(plan, computations=tuple(replace(c, local=_local(c)) for c in plan.computations))


def _local(computation: Computation) -> bytes:
    module = from_portable(computation.module)
    with module.context:
        try:
            alone = localize(module.operation, computation.axes, computation.in_layouts, computation.out_layouts)
        except (AttributeError, LookupError, TypeError, ValueError):
            return b""  # nothing that JAX writes: its devices start together, which is right for every module
        return b"" if alone is None else written(alone.operation)
