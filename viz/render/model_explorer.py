"""Writes the dataflow of a program for Google's Model Explorer (`model-explorer out.json`), with one graph for each
compilation phase.

The format: https://github.com/google-ai-edge/model-explorer/wiki, "Graph JSON".
"""

import json
from typing import Any

from pathways.viz.graphs import ROUTES, Box, Graph
from pathways.viz.render.dot import box_place, label_of
from pathways.viz.render.needs import latest_graph
from pathways.viz.scene import Scene


def model_explorer_text(scene: Scene) -> str:
    """Returns the dataflow of all known phases as JSON."""
    latest_graph(scene, ".json")
    graphs = [_graph(scene.title, graph) for graph in scene.graphs]
    return json.dumps({"label": scene.title, "graphs": graphs}, indent=1)


def _graph(title: str, graph: Graph) -> dict[str, Any]:
    nodes = [_node(number, box) for number, box in enumerate(graph.boxes)]
    outputs = [0] * len(nodes)
    for arrow in graph.arrows:
        port = str(outputs[arrow.source])
        outputs[arrow.source] += 1
        edge = {
            "sourceNodeId": str(arrow.source),
            "sourceNodeOutputId": port,
            "targetNodeInputId": str(len(nodes[arrow.target]["incomingEdges"])),
        }
        nodes[arrow.target]["incomingEdges"].append(edge)
        route = ROUTES.get(arrow.route, arrow.route)
        attributes = {
            "tensor_shape": arrow.value,
            "bytes": f"{arrow.bytes:,}",
            "values": str(arrow.many),
            "route": route,
        }
        if moved := graph.moved([arrow]):
            attributes |= {"bytes that change device": f"{moved:,}", "why": arrow.reason}
        rows = [{"key": key, "value": value} for key, value in attributes.items()]
        nodes[arrow.source]["outputsMetadata"].append({"id": port, "attrs": rows})
    return {"id": f"{title} {graph.phase}", "nodes": nodes}


def _node(number: int, box: Box) -> dict[str, Any]:
    attributes = {
        "slice": box.slice,
        "island": box.island,
        "actions": " ".join(map(str, box.parts)),
        "line": "" if box.where is None else str(box.where),
        "bytes made": f"{box.bytes:,}",
    }
    return {
        "id": str(number),
        "label": box.name,
        "namespace": "/".join(part.replace("/", "_") for part in (box_place(box), label_of(box))),
        "attrs": [{"key": key, "value": value} for key, value in attributes.items() if value],
        "incomingEdges": [],
        "outputsMetadata": [],
    }
