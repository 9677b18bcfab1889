"""Implements the `visualize()` methods of lowered and compiled programs and of traces, and their display in notebooks.
The drawing itself is in `viz/`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways.api.process import COMPILING
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Topology
from pathways.viz.actual import read_trace
from pathways.viz.graphs import Graph
from pathways.viz.kept_phases import kept_graphs
from pathways.viz.phases import watched
from pathways.viz.picture import Picture, writer_of
from pathways.viz.pictures import picture_of_plan, picture_of_trace
from pathways.viz.render.html import in_frame

NOT_COMPILED = "not compiled: compile().visualize() shows schedule, memory and devices, too"


class PicturedProgram:
    """A lowered program that can be drawn: its dataflow before placement."""

    _name: str

    def visualize(self, path: str | Path | None = None) -> Picture:
        """Returns a picture of the dataflow as traced and with its shardings. A notebook displays it.

        With `path` the picture is also written: .html, .dot or .json. Only compiled programs have schedules and memory.
        """
        writer_of(Path(path or "picture.html"))
        graphs = self.watched(None, Options(), Phase.SHARD)
        return _saved(Picture(self._name, None, graphs, notes=[NOT_COMPILED]), path)

    def watched(self, topology: Topology | None, options: Options, upto: Phase = Phase.SCHEDULE) -> list[Graph]:
        """Compiles up to a phase. Returns the dataflow at each phase on the way."""
        with COMPILING:
            return watched(self._begun(topology), upto, options)

    def _begun(self, topology: Topology | None) -> Compilation:
        raise NotImplementedError


class PicturedPlan:
    """A compiled program that can be drawn."""

    plan: Plan
    _recipe: Any

    def visualize(self, path: str | Path | None = None, *, trace: str | Path | None = None) -> Picture:
        """Returns a picture: dataflow at every phase, schedule, memory, shardings, devices. A notebook displays it.

        With `path` the picture is also written. .html has everything in one file that needs no network; .svg, .png and
        .txt have the schedule. .dot and .json have the dataflow, for Graphviz and Model Explorer. `trace` is a file
        written by `pw.trace`: its runs are drawn below the plan. Compiles once more, to record the phases. Raises
        PWC0820 for another suffix, PWC0821 for drawings without `pathways-mpmd[viz]`, PWC0822 for an invalid trace.
        """
        writer_of(Path(path or "picture.html"))
        runs = () if trace is None else read_trace(Path(trace))
        recipe = self._recipe
        graphs = kept_graphs(self.plan) if recipe is None else recipe.graphs()
        return _saved(picture_of_plan(self.plan, graphs, runs), path)

    def _repr_html_(self) -> str:
        return html_of_plan(self.plan)


def html_of_plan(plan: Plan) -> str:
    """Returns the picture of a plan as HTML for a notebook."""
    return in_frame(picture_of_plan(plan))


@dataclass
class Trace:
    """A trace that is being recorded. After its `with` block, a notebook displays its last run."""

    path: Path

    def visualize(self, path: str | Path | None = None, *, compiled: PicturedPlan | None = None) -> Picture:
        """Returns a picture of the runs, under the plan of `compiled` if given; with `path` also writes it.

        Raises PWC0822 before the block has ended, and if nothing ran in it. Raises other errors as
        `Compiled.visualize`.
        """
        if compiled is not None:
            return compiled.visualize(path, trace=self.path)
        writer_of(Path(path or "picture.html"))
        return _saved(picture_of_trace(self.path), path)

    def _repr_html_(self) -> str | None:
        return in_frame(self.visualize()) if self.path.exists() else None


def _saved(picture: Picture, path: str | Path | None) -> Picture:
    if path is not None:
        picture.save(path)
    return picture
