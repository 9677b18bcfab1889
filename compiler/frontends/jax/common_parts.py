"""What large groups of several slices have in common becomes a group of its own on each: compiled once for all.

The first stage of a pipeline updates its layers and an embedding, the last its layers and a head, the middle ones
layers alone. What is done with what one placed call has made is a part: where the largest part of a group is what is
done on another slice, too, the rest of the group stands before it, as a computation of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pathways.compiler.frontends.jax.graph import Loose, TracedValue
from pathways.compiler.frontends.jax.groups import Group, Unit, faces
from pathways.compiler.frontends.jax.origins import Origin
from pathways.compiler.frontends.jax.structure import Structures

LARGE = 64
"""Equations from which on a part takes so long to compile that it is worth a call of its own."""


def with_common_parts(units: Sequence[Unit], origins: Mapping[TracedValue, Origin], nodes: int) -> list[Unit]:
    """The units of a graph with so many nodes, groups cut in two where the largest part is another's, too. Pure."""
    large = [u for u in units if isinstance(u, Group) and len(u.operations) >= LARGE]
    cut = {group: _cut(group, origins, nodes) for group in large if _works_for_several(group, origins, nodes)}
    sizes = [len(parts[-1].operations) for parts in cut.values() if len(parts) > 1]
    least = min((size for size in sizes if size >= LARGE), default=None)
    if least is None:
        return [*units]
    others = [group for group in large if group not in cut and len(group.operations) >= least]
    cut |= {group: _cut(group, origins, nodes) for group in others}
    parts = {group: made[-1] for group, made in cut.items() if len(made[-1].operations) >= least}
    structures = Structures()
    said = {group: structures.of(part) for group, part in parts.items()}
    found = Counter(said.values())
    shared = {group for group, structure in said.items() if found[structure] > 1}
    return [part for u in units for part in (cut[u] if isinstance(u, Group) and u in shared else [u])]


def _works_for_several(group: Group, origins: Mapping[TracedValue, Origin], nodes: int) -> bool:
    """Whether arrays that it gives come of several placed nodes."""
    return len({origins[v][0] for v in group.outputs if v.aval.shape} - {nodes}) > 1


def _cut(group: Group, origins: Mapping[TracedValue, Origin], nodes: int) -> list[Group]:
    """The rest of a group, if there is any, and its largest part; the whole group where the rest takes of that part."""
    owners = _owners(group, origins, nodes)
    largest = Counter(owner for owner in owners if owner is not None).most_common(1)
    inside = [owner is not None and owner == largest[0][0] for owner in owners]
    part = [o for o, is_inside in zip(group.operations, inside, strict=True) if is_inside]
    rest = [o for o, is_inside in zip(group.operations, inside, strict=True) if not is_inside]
    made = {v for o in part for v in o.outputs}
    if not part or not rest or any(v in made for o in rest for v in o.inputs):
        return [group]
    given = set(group.outputs)
    taken = {v for o in part for v in o.inputs}
    return [_group_of(group, rest, given | taken), _group_of(group, part, given)]


def _owners(group: Group, origins: Mapping[TracedValue, Origin], nodes: int) -> list[int | None]:
    """The placed node that each operation works for; None for numbers, and for what works for several.

    What is made of arguments alone works for those who take it.
    """
    takers: dict[TracedValue, set[int | None]] = {}
    owners: list[int | None] = []
    for operation in reversed(group.operations):
        known: set[int | None] = {origins[v][0] for v in operation.outputs if v.aval.shape}
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
