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
        advice = f"pwc viz plan.bin --trace trace.json -o flow{what}"
        raise nothing(what, "a trace without its plan, which has no dataflow", "the plan that was run", advice)
    return scene.graphs[-1]


def nothing(path: str, problem: str, rule: str, advice: str) -> PathwaysError:
    """Builds PWC0823."""
    return PathwaysError(NothingToDraw(path=f"a {path} file", problem=problem, rule=rule, advice=advice))
