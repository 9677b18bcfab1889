"""Checks that each StableHLO module in a plan file has the types and shardings that the plan states. PJRT does not
check this and would crash. It is called when a plan file is opened, and by `pwc check`.

The rules are in `dialect/plan/modules`. For plans of other users, a separate process applies them first.
"""

from dataclasses import replace

from pathways.dialect.bare_mlir import Context, make_bare_context
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.errors import UnknownTarget, UnsafePlan
from pathways.dialect.host_callbacks import calls_back
from pathways.dialect.plan.modules.check import check_module, read_module
from pathways.dialect.plan.modules.custom_calls import allowed_by_user
from pathways.dialect.plan.modules.stated_module import Refused, Stated
from pathways.dialect.plan.modules.vet import MODULE_RULE, stated_of
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.sharding import Dims, MeshSpec, Sharding, size_of_axes


def check_modules(plan: Plan, path: str) -> None:
    """Raises PWC0604 if a module breaks a rule, or PWC0611 if it has an unknown custom call."""
    context, allowed = make_bare_context(), allowed_by_user()
    for computation in plan.computations:
        try:
            _check(computation, plan.platform, context, allowed)
        except Refused as refused:
            if refused.target:
                unknown = UnknownTarget(path=path, name=computation.name, target=refused.target, platform=plan.platform)
                raise PathwaysError(unknown) from None
            problem = f"{computation.name} {refused.problem}"
            raise PathwaysError(UnsafePlan(path=path, problem=problem, rule=MODULE_RULE)) from None


def _check(computation: Computation, platform: str, context: Context, allowed: str) -> None:
    if computation.callbacks or calls_back(computation.module) or calls_back(computation.local):
        raise Refused("has host callbacks of another Python process")
    stated = stated_of(computation, platform)
    raw = computation.module
    check_module(read_module(raw, context), stated, len(raw), allowed)
    if raw := computation.local:
        try:
            check_module(read_module(raw, context), _of_one_device(stated), len(raw), allowed)
        except Refused as refused:
            raise Refused(f"(its module for one device) {refused.problem}", refused.target) from None


def _of_one_device(stated: Stated) -> Stated:
    """Returns the signature of the module for one device, whose arguments and results are shards."""
    sizes = dict(stated.axes)
    spec = MeshSpec(stated.axes, tuple(range(size_of_axes(stated.axes))))

    def shards(types: tuple[ArrayType, ...], layouts: tuple[Dims, ...]) -> tuple[ArrayType, ...]:
        return tuple(
            ArrayType(Sharding(spec, d).shard_shape(t.shape), t.dtype) for t, d in zip(types, layouts, strict=True)
        )

    if any(name not in sizes for d in (*stated.in_layouts, *stated.out_layouts) for a in d for name in a):
        raise Refused("is split over axes that its mesh does not have")
    inputs, outputs = shards(stated.inputs, stated.in_layouts), shards(stated.outputs, stated.out_layouts)
    return replace(
        stated,
        inputs=inputs,
        in_layouts=tuple(((),) * len(t.shape) for t in inputs),
        outputs=outputs,
        out_layouts=tuple(((),) * len(t.shape) for t in outputs),
        axes=(),
    )
