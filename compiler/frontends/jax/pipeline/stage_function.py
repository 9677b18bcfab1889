"""Converts a pipeline stage to a Python function, which `pipeline.py` passes to `jax.jit`. The function runs the
stage's equations under their own source lines, named scopes and checkpoints. Parameters that are held in a wider type
for accumulation are first cast back.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from pathways.compiler.frontends.jax.pipeline.assemble import Stage, is_code, read
from pathways.compiler.frontends.jax.pipeline.graph import Checkpoint, Operation, Value

_any_jax: Any = jax


def stage_function(stage: Stage, checkpoints: dict[int, Checkpoint], casts: Sequence[Any]) -> Callable[..., list[Any]]:
    """Returns the function from a stage's inputs to its outputs.

    `casts[i]` is the type to compute with input i in, or None.
    """

    def function(*values: Any) -> list[Any]:
        taken = [v if cast is None else v.astype(cast) for v, cast in zip(values, casts, strict=True)]
        env: dict[Value, Any] = dict(zip(stage.inputs, taken, strict=True))
        _evaluate(stage.operations, env, 0, set(stage.outputs), checkpoints)
        return [env[v] for v in stage.outputs]

    function.__name__ = stage.name
    return function


def _evaluate(
    operations: Sequence[Operation],
    env: dict[Value, Any],
    depth: int,
    wanted: set[Value],
    checkpoints: dict[int, Checkpoint],
) -> None:
    """Runs operations. Adjacent operations of one checkpoint run together, under one `jax.checkpoint`."""
    at = 0
    while at < len(operations):
        group = operations[at].groups[depth : depth + 1]
        if not group:
            operation = operations[at]
            values = [read(o, env) for o in operation.inputs]
            env.update(zip(operation.outputs, operation.run(values), strict=True))
            at += 1
            continue
        end = at
        while end < len(operations) and operations[end].groups[depth : depth + 1] == group:
            end += 1
        later = wanted | {v for o in operations[end:] for v in o.reads}
        _checkpointed(operations[at:end], env, depth, later, group[0], checkpoints)
        at = end


def _checkpointed(
    operations: Sequence[Operation],
    env: dict[Value, Any],
    depth: int,
    later: set[Value],
    number: int,
    checkpoints: dict[int, Checkpoint],
) -> None:
    made = {v for o in operations for v in o.outputs}
    taken = list(dict.fromkeys(v for o in operations for v in o.reads if v not in made and not is_code(v)))
    given = [v for o in operations for v in o.outputs if v in later]

    def inside(*values: Any) -> list[Any]:
        inner: dict[Value, Any] = dict(zip(taken, values, strict=True))
        _evaluate(operations, inner, depth + 1, set(given), checkpoints)
        return [inner[v] for v in given]

    options = checkpoints[number]
    again = _any_jax.checkpoint(inside, prevent_cse=options.prevent_cse, policy=options.policy)
    env.update(zip(given, again(*(read(v, env) for v in taken)), strict=True))
