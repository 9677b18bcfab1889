"""Checks that the array types, meshes and shardings in a plan are possible. Each computation must state a sharding for
each argument and result, and donate only its arguments. The other checks of a plan call it. Pure functions.
"""

from collections import Counter
from collections.abc import Iterator

from pathways.dialect.dtypes import ArrayType, is_stored_as_named
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.sharding import Axes, Dims, MeshSpec, Sharding

MAX_DIMENSIONS = 64
"""The most dimensions of an array or a mesh: the limit of numpy."""
MAX_ARRAY_BYTES = 1 << 60
"""The most bytes of an array: 64-bit counters must not overflow."""


def type_problem(type_: ArrayType) -> tuple[str, str] | None:
    """Returns why no array can have a type, and the rule; None if the type is valid."""
    if not is_stored_as_named(type_.dtype) or min(type_.shape, default=0) < 0:
        return f"of type {type_}", "a known element type and sizes from 0"
    if len(type_.shape) > MAX_DIMENSIONS:
        return f"with {len(type_.shape)} dimensions", f"at most {MAX_DIMENSIONS}"
    size = type_.shard_bytes(tuple(filter(None, type_.shape)))  # a dimension of 0 would hide the size of the others
    return (f"of type {type_}", f"at most {MAX_ARRAY_BYTES} bytes") if size > MAX_ARRAY_BYTES else None


def axes_problem(axes: Axes) -> str | None:
    """Returns why no mesh can have these axes; None if they are valid."""
    if len({name for name, _ in axes}) != len(axes):
        return "with an axis twice"
    if len(axes) > MAX_DIMENSIONS or any(size < 1 for _, size in axes):
        return f"with axes {axes[:MAX_DIMENSIONS]}"
    return None


def layout_problem(type_: ArrayType, dims: Dims, axes: Axes) -> tuple[str, str] | None:
    """Returns why an array of this type cannot have this layout on a mesh with these axes, and the rule; else None."""
    if (problem := type_problem(type_)) is not None:
        return problem
    used = [a for split in dims for a in split]
    if len(dims) != len(type_.shape) or len(set(used)) != len(used) or not {n for n, _ in axes}.issuperset(used):
        return f"split as {dims}", f"one entry per dimension, axes of {axes}"
    if not used:
        return None
    sharding = Sharding(MeshSpec(axes, ()), dims)
    return (f"of {type_} split as {sharding}", "shards of equal size") if sharding.undivided(type_.shape) else None


def computation_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    """Finds problems in the signatures of computations."""
    names = Counter(c.name for c in plan.computations)
    for computation in plan.computations:
        if names[computation.name] > 1:
            yield f"{names[computation.name]} computations {computation.name}", "a different name for each"
        yield from _computation(computation)


def _computation(computation: Computation) -> Iterator[tuple[str, str]]:
    name = f"computation {computation.name}"
    if (problem := axes_problem(computation.axes)) is not None:
        yield f"{name} is for a mesh {problem}", f"at most {MAX_DIMENSIONS} different axes of sizes from 1"
    sides = (
        ("input", computation.inputs, computation.in_layouts),
        ("output", computation.outputs, computation.out_layouts),
    )
    for side, types, layouts in sides:
        if len(types) != len(layouts):
            yield f"{name} has {len(layouts)} layouts for {len(types)} {side}s", "one layout per array"
            return
        for i, (type_, dims) in enumerate(zip(types, layouts, strict=True)):
            if (bad := layout_problem(type_, dims, computation.axes)) is not None:
                yield f"{name} has {side} {i} {bad[0]}", bad[1]
    if any(not 0 <= d < len(computation.inputs) for d in computation.donated):
        yield f"{name} donates {computation.donated}", f"inputs 0 to {len(computation.inputs) - 1}"
    if len(set(computation.donated)) != len(computation.donated):
        yield f"{name} donates {computation.donated}", "each input at most once"
