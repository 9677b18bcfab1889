"""`visualize()` of lowered and compiled programs, and how they show themselves in notebooks."""

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

NOT_COMPILED = "not compiled: compile().visualize() has its schedule, memory and devices"


class PicturedProgram:
    """A lowered program that can be looked at: its dataflow, before it is placed."""

    _name: str

    def visualize(self, path: str | Path | None = None) -> Picture:
        """Returns a picture of the dataflow as traced and with its shardings; shows itself in a notebook.

        With `path` it is written, too: .html, .dot or .json. Schedules and memory are of compiled programs.
        """
        writer_of(Path(path or "picture.html"))
        graphs = self.watched(None, Options(), Phase.SHARD)
        return _saved(Picture(self._name, None, graphs, notes=[NOT_COMPILED]), path)

    def watched(self, topology: Topology | None, options: Options, upto: Phase = Phase.SCHEDULE) -> list[Graph]:
        """Compiles down to a phase; returns the dataflow at each phase on the way."""
        with COMPILING:
            return watched(self._begun(topology), upto, options)

    def _begun(self, topology: Topology | None) -> Compilation:
        raise NotImplementedError


class PicturedPlan:
    """A compiled program that can be looked at."""

    plan: Plan
    _recipe: Any

    def visualize(self, path: str | Path | None = None, *, trace: str | Path | None = None) -> Picture:
        """Returns a picture: dataflow at every phase, schedule, memory, shardings, devices; shows itself in a notebook.

        With `path` it is written, too: .html (all of it, one file that needs no network), .svg or .png (the schedule),
        .dot or .json (the dataflow, for Graphviz and Model Explorer), .txt (the schedule). `trace` is a file that
        `pw.trace` wrote: what its runs did is drawn under the plan. Compiles once more, to see the phases.
        Raises PWC0820 for another ending, PWC0821 for drawings without `pathways-mpmd[viz]`, PWC0822 for no trace.
        """
        writer_of(Path(path or "picture.html"))
        runs = () if trace is None else read_trace(Path(trace))
        recipe = self._recipe
        graphs = kept_graphs(self.plan) if recipe is None else recipe.graphs()
        return _saved(picture_of_plan(self.plan, graphs, runs), path)

    def _repr_html_(self) -> str:
        return in_frame(picture_of_plan(self.plan))


@dataclass
class Trace:
    """A trace that is being recorded. When its `with` block has ended, its last run shows itself in a notebook."""

    path: Path

    def visualize(self, path: str | Path | None = None, *, compiled: PicturedPlan | None = None) -> Picture:
        """Returns a picture of the runs, under the plan of `compiled` where it is given; with `path` also writes it.

        Raises PWC0822 before the block has ended, and where nothing ran in it; else as `Compiled.visualize`.
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
