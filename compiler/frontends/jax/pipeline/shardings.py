"""Decides how the inputs of a pipeline stage are split over the mesh of its slice: parameters by the user's specs, the
batch by rows. `pipeline.py` and `compiler/search` use it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, cast

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.pipeline.graph import DATA, PARAMETER, Value
from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline

BATCH_AXIS = "data"
"""The mesh axis that the rows of a batch are split over."""
ParamSpecs: TypeAlias = "Callable[[str, Any], P] | Mapping[str, P] | Any | None"
_any_jax: Any = jax
_tree_util: Any = jax.tree_util


def stage_meshes(slices: Any) -> list[Mesh]:
    """Returns the mesh of each stage. A slice without a mesh gets one axis, over which the batch is split."""
    if isinstance(slices, Mesh | VirtualSlice):
        slices = [slices]
    meshes = [s.mesh(BATCH_AXIS) if isinstance(s, VirtualSlice) else s for s in cast("Sequence[Any]", slices)]
    if not meshes or not all(isinstance(m, Mesh) for m in meshes):
        have = ", ".join(type(m).__name__ for m in meshes) or "nothing"
        rule = "a sequence of slices, or of meshes over slices: one per stage"
        advice = "pw.pipeline(loss, [devices.add_slice(devices=1) for _ in range(4)])"
        raise bad_pipeline("pw.pipeline got no valid slices", have, rule, advice)
    return meshes


def shared_abstract_mesh(meshes: Sequence[Mesh]) -> AbstractMesh | None:
    """Returns the mesh that all stages share: `with_sharding_constraint(x, P("data"))` in the model refers to its axes.

    None if stages have meshes of several shapes: an axis then differs from stage to stage.
    """
    first = meshes[0].abstract_mesh
    return first if all(m.abstract_mesh == first for m in meshes) else None


def axes_of(meshes: Sequence[Mesh]) -> AbstractContextManager[Any]:
    """Returns a context for tracing a loss that names mesh axes of its stages."""
    mesh = shared_abstract_mesh(meshes) if meshes else None
    return nullcontext() if mesh is None else _any_jax.sharding.use_abstract_mesh(mesh)


class Specs:
    """The partition specs of parameters, by their names, and of values that have the rows of the batch."""

    def __init__(
        self, param_specs: ParamSpecs, names: Sequence[str], avals: Sequence[Any], trees: Sequence[Any]
    ) -> None:
        self._find = _finder(param_specs, names, avals, trees)

    def of(self, value: Value, mesh: Mesh, rows: int) -> NamedSharding:
        """Returns the sharding of a value on the mesh of a stage, for a batch of `rows` rows."""
        shape = tuple(value.aval.shape)
        source = value
        while source.maker is not None and source.maker.name == "slice" and len(source.maker.reads) == 1:
            source = source.maker.reads[0]
        if source.argument >= 0 and source.depends == PARAMETER:
            return NamedSharding(mesh, self._find(source.argument))
        batched = bool(value.depends & DATA) and bool(shape) and rows > 0 and shape[0] % rows == 0
        split = BATCH_AXIS in mesh.axis_names and batched and shape[0] % mesh.shape[BATCH_AXIS] == 0
        return NamedSharding(mesh, P(BATCH_AXIS) if split else P())


def _finder(specs: Any, names: Sequence[str], avals: Sequence[Any], trees: Sequence[Any]) -> Callable[[int], P]:
    if specs is None:
        return lambda _: P()
    if callable(specs):
        spec_of = cast("Callable[[str, Any], P | None]", specs)
        return lambda i: spec_of(names[i], avals[i]) or P()
    flat, found = _tree_util.tree_flatten(specs, is_leaf=_is_spec)
    for first, tree in trees:
        if found == tree:
            return lambda i: (flat[i - first] or P()) if first <= i < first + len(flat) else P()
    if isinstance(specs, Mapping) and _are_patterns(cast("Mapping[Any, Any]", specs)):
        patterns = [(re.compile(k), v) for k, v in cast("Mapping[str, P]", specs).items()]
        return lambda i: next((spec for pattern, spec in patterns if pattern.search(names[i])), P())
    have = f"a tree of {_tree_util.tree_structure(specs).num_leaves} leaves"
    rule = "a function of a leaf's path and type, a dict of path patterns, or a tree like an argument of the loss"
    raise bad_pipeline("param_specs matches no argument", have, rule, "param_specs=lambda path, leaf: P()")


def _are_patterns(specs: Mapping[Any, Any]) -> bool:
    return all(isinstance(k, str) and isinstance(v, P) for k, v in specs.items())


def _is_spec(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, P)
