"""Computes the flops that a backward pass repeats because the user wrapped parts of the loss in `jax.checkpoint`.
`profile.py` adds them to its cost estimates.
"""

from collections.abc import Mapping
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, body_of
from pathways.compiler.frontends.jax.pipeline.graph import Checkpoint, Operation
from pathways.compiler.frontends.jax.pipeline.work import REMATS, flops_of_eqn


def computed_again(operation: Operation, checkpoints: Mapping[int, Checkpoint]) -> float:
    """Returns the flops of an operation that backward repeats. A policy is assumed to keep all expensive values."""
    if any(checkpoints[group].policy is None for group in operation.groups):
        return operation.flops
    if operation.eqn is None or operation.stacks >= 0:
        return 0.0
    total = _inside(operation.eqn)
    return total / operation.loop.length if operation.loop is not None else total


def _inside(eqn: Eqn) -> float:
    name: str = eqn.primitive.name
    if name in REMATS:
        return float(flops_of_eqn(eqn)) if eqn.params["policy"] is None else 0.0
    if name == "scan":
        return eqn.params["length"] * _of_body(eqn.params["jaxpr"])
    if name in ("cond", "while"):
        return 0.0
    return next((_of_body(inner) for inner in compat.sub_jaxprs(eqn)), 0.0)


def _of_body(jaxpr: Any) -> float:
    return sum(_inside(eqn) for eqn in body_of(jaxpr).eqns)
