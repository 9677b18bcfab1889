"""Cuts a loss into pipeline stages where the user says so: at modules, at lines of the source, or by counts of layers.
`plan_stages.py` calls it in place of the automatic choice.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

from pathways.compiler.frontends.jax.pipeline.divide import Cut
from pathways.compiler.frontends.jax.pipeline.graph import Operation
from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline
from pathways.compiler.frontends.jax.pipeline.spine import Spine

Cuts: TypeAlias = Sequence[str] | Sequence[int] | None
_LINE = re.compile(r"^(?:(.*):)?(\d+)$")
_NUMBERED = re.compile(r"^(.*?)(\d+)(?=/|$)")


def cut_by_hand(spine: Spine, cuts: Sequence[str] | Sequence[int], stages: int) -> Cut:
    """Returns the cut at the first operation of each module or line, or after the given counts of layers.

    Raises PWC0112 if the number of cuts is wrong, a name is not found, or the cuts are not in order.
    """
    if all(isinstance(c, int) for c in cuts):
        counts = [int(c) for c in cuts]
        places = _places_of_counts(spine, counts, stages)
    else:
        if len(cuts) != stages - 1:
            rule = f"{stages - 1} cuts, at the start of each stage but the first"
            raise bad_pipeline("cuts= has the wrong length", f"{len(cuts)} cuts", rule, "name where each stage begins")
        places = [_place_of_name(spine, str(c)) for c in cuts]
    if sorted(set(places)) != places or (places and (places[0] < 1 or places[-1] >= len(spine))):
        have, rule = f"cuts before operations {places}", f"increasing numbers from 1 to {len(spine) - 1}"
        raise bad_pipeline("cuts= are not in order", have, rule, "name modules in the order of the loss")
    return Cut((0, *places, len(spine)), "as cuts= states")


def _place_of_name(spine: Spine, name: str) -> int:
    line = _LINE.match(name)
    for place, operation in enumerate(spine.operations):
        if f"/{name}/" in f"/{operation.scope}/" or (line and _is_at(operation, line[1], int(line[2]))):
            return place
    known = dict.fromkeys(m for o in spine.operations for m in o.scope.split("/") if m)
    have = f"modules {', '.join(list(known)[:40])}" if known else "no named modules"
    rule = "a module's name (jax.named_scope, flax, haiku), or FILE:LINE"
    advice = "use one of these modules, or FILE:LINE" if known else "use FILE:LINE, or add jax.named_scope to layers"
    raise bad_pipeline(f"cuts= names {name!r}, which contains no operation of the loss", have, rule, advice)


def _is_at(operation: Operation, file: str | None, line: int) -> bool:
    where = operation.where
    if where is None or where.line != line:
        return False
    return not file or where.file == file or where.file.endswith(f"/{file}")


def _places_of_counts(spine: Spine, counts: Sequence[int], stages: int) -> list[int]:
    if len(counts) != stages:
        rule = f"{stages} counts, one per stage"
        raise bad_pipeline("cuts= has the wrong length", f"{len(counts)} counts of layers", rule, "cuts=[6, 6, 6, 6]")
    starts = layer_starts(spine)
    if sum(counts) != len(starts) or min(counts) < 1:
        have = f"{' + '.join(map(str, counts))} = {sum(counts)} layers"
        rule = f"counts from 1 with the sum {len(starts)}, the number of layers"
        raise bad_pipeline("cuts= does not match the layers", have, rule, "change the counts, or name modules or lines")
    places: list[int] = []
    at = 0
    for count in counts[:-1]:
        at += count
        places.append(starts[at])
    return places


def layer_starts(spine: Spine) -> list[int]:
    """Returns the position of each layer's first operation.

    Layers are the iterations of a loop, or modules with numbered names. The candidate with the most layers is used.
    """
    loops: dict[int, list[int]] = {}
    modules: dict[str, dict[int, int]] = {}
    for place, operation in enumerate(spine.operations):
        if operation.is_iteration:
            loops.setdefault(id(operation.loop), []).append(place)
        scope = operation.scope
        for match in (_NUMBERED.match(scope[: m.end()]) for m in re.finditer(r"[^/]+", scope)):
            if match:
                modules.setdefault(match[1], {}).setdefault(int(match[2]), place)
    found = [sorted(numbers.values()) for numbers in modules.values()]
    return max([*loops.values(), *found], key=len, default=list[int]())
