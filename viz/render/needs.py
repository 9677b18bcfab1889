"""What kinds of pictures need, and the errors where it is not there."""

from pathways.dialect.diagnostics import PathwaysError
from pathways.viz.errors import NothingToDraw
from pathways.viz.graphs import Graph
from pathways.viz.scene import Scene


def latest_graph(scene: Scene, what: str) -> Graph:
    """Returns the dataflow at the last phase that is known. Raises PWC0823 where none is."""
    if not scene.graphs:
        raise nothing(what, "a trace alone, which has no dataflow", "a plan", "pwc viz plan.bin --trace trace.json")
    return scene.graphs[-1]


def nothing(path: str, problem: str, rule: str, advice: str) -> PathwaysError:
    """Makes PWC0823."""
    return PathwaysError(NothingToDraw(path=path, problem=problem, rule=rule, advice=advice))
