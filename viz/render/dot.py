"""Writes the dataflow of a program as a Graphviz file (.dot): one cluster for each slice of devices, one node for
similar calls of a stage.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pathways.viz.graphs import ROUTES, Arrow, Box, Graph
from pathways.viz.render.needs import latest_graph
from pathways.viz.render.words import WORDS
from pathways.viz.scene import Scene

COLORS = ("#5b9be0", "#e59a4a", "#5db878", "#b88ad8", "#d9776f", "#4fb6b2", "#c9a63c", "#8f9bdb")


def dot_text(scene: Scene) -> str:
    """Returns the dataflow of the last known phase. `dot -Tsvg` draws it."""
    graph = latest_graph(scene, ".dot")
    groups = group_boxes(graph)
    lines = [f"digraph {_quoted(scene.title)} {{", '  rankdir=LR; node [shape=box, style="rounded,filled"];']
    number = {key: i for i, key in enumerate(groups)}
    lines += [*_clusters(graph, groups, number), *_edges(graph, groups, number)]
    return "\n".join([*lines, "}", ""])


_Groups: TypeAlias = Mapping[tuple[str, str], list[int]]


def _clusters(graph: Graph, groups: _Groups, number: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Writes a cluster for each location, with the groups of its calls."""
    boxes = {key: graph.boxes[members[0]] for key, members in groups.items()}
    for at, place in enumerate(dict.fromkeys(box_place(box) for box in boxes.values())):
        color = _quoted(COLORS[at % len(COLORS)])
        yield f"  subgraph cluster_{at} {{"
        yield f"    label={_quoted(place)}; color={color};"
        for key, box in boxes.items():
            if box_place(box) == place:
                many = len(groups[key])
                label = _quoted(key[1] + (f" x{many}" if many > 1 else ""))
                line = _quoted("" if box.where is None else box.where.at)
                yield f"    n{number[key]} [label={label}, fillcolor={color}, tooltip={line}];"
        yield "  }"


def _edges(graph: Graph, groups: _Groups, number: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Writes the values passed between groups, one edge for each route."""
    of = {member: number[key] for key, members in groups.items() for member in members}
    between: dict[tuple[int, int, str], list[Arrow]] = {}
    for arrow in graph.arrows:
        ends = of[arrow.source], of[arrow.target], arrow.route
        if ends[0] != ends[1]:
            between.setdefault(ends, []).append(arrow)
    for (source, target, route), arrows in between.items():
        size = graph.moved(arrows) if route else sum(a.bytes for a in arrows)
        label = _quoted(f"{size:,} bytes {ROUTES.get(route, route)}")
        yield f"  n{source} -> n{target} [tooltip={label}{', color=red' if route == 'dcn' else ''}];"


def box_place(box: Box) -> str:
    """Returns the location of a call: its slice, and the island if that is decided."""
    return " on ".join(filter(None, (box.slice, box.island))) or "on data"


def group_boxes(graph: Graph) -> dict[tuple[str, str], list[int]]:
    """Groups the calls on one slice by stage and kind, and other calls by name."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, box in enumerate(graph.boxes):
        found.setdefault((box_place(box), label_of(box)), []).append(number)
    return found


def label_of(box: Box) -> str:
    if not box.parts:
        return box.name
    stages = "+".join(dict.fromkeys(str(p.stage) for p in box.parts))
    kinds = " and ".join(dict.fromkeys(WORDS[p.kind] for p in box.parts))
    return f"stage {stages} {kinds}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
