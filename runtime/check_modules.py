"""Whether the modules of a plan from a file are what its manifest says: PJRT would not ask, and would not survive."""

from dataclasses import replace

from pathways.dialect.diagnostics import InternalError, PathwaysError
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.host_callbacks import calls_back
from pathways.dialect.jax_api import JaxRuntimeError
from pathways.dialect.mlir import Operation, from_portable
from pathways.dialect.plan import Computation, Plan
from pathways.dialect.program import described, main_of
from pathways.dialect.sharding import Dims, MeshSpec, Sharding, size_of_axes


def check_modules(plan: Plan, path: str) -> None:
    """Raises PWC0604 where a module has other arguments, results, partitions or donation than the plan states."""
    for computation in plan.computations:
        problem = _problem(computation) or (_local_problem(computation) if computation.local else None)
        if problem is not None:
            rule = "a module with the signature that the plan states"
            raise PathwaysError(UnsafePlan(path=path, problem=f"{computation.name} {problem}", rule=rule))


def _local_problem(computation: Computation) -> str | None:
    """Whether the module for one device takes and gives shards."""
    sizes = dict(computation.axes)

    def shards(types: tuple[ArrayType, ...], layouts: tuple[Dims, ...]) -> tuple[ArrayType, ...]:
        spec = MeshSpec(computation.axes, tuple(range(size_of_axes(computation.axes))))
        return tuple(
            ArrayType(Sharding(spec, d).shard_shape(t.shape), t.dtype) for t, d in zip(types, layouts, strict=True)
        )

    if any(name not in sizes for d in (*computation.in_layouts, *computation.out_layouts) for a in d for name in a):
        return "is split over axes that it does not have"
    part = replace(
        computation,
        name=f"{computation.name} (for one device)",
        module=computation.local,
        inputs=shards(computation.inputs, computation.in_layouts),
        outputs=shards(computation.outputs, computation.out_layouts),
        axes=(),
    )
    problem = _problem(part)
    return None if problem is None else f"for one device {problem}"


def _problem(computation: Computation) -> str | None:
    if computation.callbacks or calls_back(computation.module):
        return "calls back to a Python process that is not this one"
    try:
        module = from_portable(computation.module)
        main = main_of(module.operation)
    except (JaxRuntimeError, ValueError, RuntimeError, InternalError) as error:
        return f"cannot be read: {str(error).splitlines()[0]}"
    type_ = main.type
    try:
        types = tuple(map(from_mlir, type_.inputs)), tuple(map(from_mlir, type_.results))
    except (KeyError, AttributeError, TypeError, ValueError):
        return "has arguments or results that are not arrays of a fixed shape"
    if types != (computation.inputs, computation.outputs):
        return "has other arguments or results"
    arguments = described(main, "arg_attrs", len(computation.inputs))
    donated = tuple(i for i, a in enumerate(arguments) if "jax.buffer_donor" in a or "tf.aliasing_output" in a)
    if donated != computation.donated:
        return f"donates {donated}, the plan says {computation.donated}"
    return (
        None if _partitions(module.operation) == size_of_axes(computation.axes) else "is for another number of devices"
    )


def _partitions(module: Operation) -> int:
    attributes = module.attributes
    return attributes["mhlo.num_partitions"].value if "mhlo.num_partitions" in attributes else 1
