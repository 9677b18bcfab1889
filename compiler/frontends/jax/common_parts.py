"""Splits large groups of unplaced operations so that XLA compiles their common parts only once. For example, the
optimizer updates of the first and the last pipeline stage contain the update of a middle stage. `gather.py` calls it
after it has made the groups.

In a pipeline, the first stage updates its layers and an embedding, the last stage its layers and a head. The middle
stages update only layers. A part is all operations on the results of one placed call. If the largest part of a group
also occurs on another slice, the rest of the group becomes a separate computation before it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pathways.compiler.frontends.jax.graph import Loose, TracedValue
from pathways.compiler.frontends.jax.groups import Group, Unit, faces
from pathways.compiler.frontends.jax.origins import PER_NODE, Origin
from pathways.compiler.frontends.jax.structure import Structures

LARGE = 64
"""Minimum number of equations of a part. Smaller parts compile too quickly to be worth a call of their own."""


def with_common_parts(units: Sequence[Unit], origins: Mapping[TracedValue, Origin], nodes: int) -> list[Unit]:
    """Splits groups in two if their largest part also occurs in another group. Pure.

    `nodes` is the number of nodes in the graph.
    """
    large = [u for u in units if isinstance(u, Group) and u.size >= LARGE]
    cut = {group: _cut(group, origins, nodes) for group in large if _works_for_several(group, origins, nodes)}
    sizes = [parts[-1].size for parts in cut.values() if len(parts) > 1]
    least = min((size for size in sizes if size >= LARGE), default=None)
    if least is None:
        return [*units]
    others = [group for group in large if group not in cut and group.size >= least]
    cut |= {group: _cut(group, origins, nodes) for group in others}
    parts = {group: made[-1] for group, made in cut.items() if made[-1].size >= least}
    structures = Structures()
    structure_of = {group: structures.of(part) for group, part in parts.items()}
    found = Counter(structure_of.values())
    shared = {group for group, structure in structure_of.items() if found[structure] > 1}
    return [part for u in units for part in (cut[u] if isinstance(u, Group) and u in shared else [u])]


def _works_for_several(group: Group, origins: Mapping[TracedValue, Origin], nodes: int) -> bool:
    """Whether the arrays that a group returns derive from several placed nodes."""
    return len({origins[v] // PER_NODE for v in group.outputs if v.aval.shape} - {nodes}) > 1


def _cut(group: Group, origins: Mapping[TracedValue, Origin], nodes: int) -> list[Group]:
    """Splits a group into the rest, if any, and its largest part. Returns it whole if the rest reads that part."""
    operations = [one for joined in group.operations for one in joined.apart()]
    owners = _owners(operations, origins, nodes)
    largest = Counter(owner for owner in owners if owner is not None).most_common(1)
    inside = [owner is not None and owner == largest[0][0] for owner in owners]
    part = [o for o, is_inside in zip(operations, inside, strict=True) if is_inside]
    rest = [o for o, is_inside in zip(operations, inside, strict=True) if not is_inside]
    made = {v for o in part for v in o.outputs}
    if not part or not rest or any(v in made for o in rest for v in o.inputs):
        return [group]
    given = set(group.outputs)
    taken = {v for o in part for v in o.inputs}
    return [_group_of(group, rest, given | taken), _group_of(group, part, given)]


def _owners(operations: Sequence[Loose], origins: Mapping[TracedValue, Origin], nodes: int) -> list[int | None]:
    """Finds the placed node that each operation belongs to; None for scalars and for operations of several nodes.

    An operation on arguments alone belongs to the node of its consumers.
    """
    takers: dict[TracedValue, set[int | None]] = {}
    owners: list[int | None] = []
    for operation in reversed(operations):
        known: set[int | None] = {origins[v] // PER_NODE for v in operation.outputs if v.aval.shape}
        if known == {nodes}:
            known = {owner for v in operation.outputs for owner in takers.get(v, ())}
        owner = known.pop() if len(known) == 1 else None
        owners.append(owner)
        for value in operation.inputs:
            takers.setdefault(value, set()).add(owner)
    return owners[::-1]


def _group_of(group: Group, operations: list[Loose], wanted: set[TracedValue]) -> Group:
    inputs, outputs = faces(operations, wanted.__contains__)
    return replace(group, operations=operations, inputs=inputs, outputs=outputs)
