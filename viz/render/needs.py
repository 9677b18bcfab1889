"""Makes the error for a picture format that cannot show a program, because its dataflow or its schedule is not known.
Also returns the latest dataflow graph, or raises that error. The writers of this folder call it.
"""

from pathways.dialect.diagnostics import PathwaysError
from pathways.viz.errors import NothingToDraw
from pathways.viz.graphs import Graph
from pathways.viz.scene import Scene


def latest_graph(scene: Scene, what: str) -> Graph:
    """Returns the dataflow at the last known phase. Raises PWC0823 if no phase is known."""
    if not scene.graphs:
        raise nothing(what, "a trace alone, which has no dataflow", "a plan", "pwc viz plan.bin --trace trace.json")
    return scene.graphs[-1]


def nothing(path: str, problem: str, rule: str, advice: str) -> PathwaysError:
    """Builds PWC0823."""
    return PathwaysError(NothingToDraw(path=path, problem=problem, rule=rule, advice=advice))
