"""Makes a `Picture` from a plan or from a recorded trace, with notes on what it cannot show. The `visualize` methods of
the API and `pwc viz` call it.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.viz.actual import Recorded, read_trace
from pathways.viz.graphs import Graph
from pathways.viz.picture import Picture

NO_PHASES = "the plan has no dumps of earlier phases: pwc compile --with-phases keeps them"
ONLY_TRACE = "only a trace: with its plan, dataflow, memory and shardings are shown, too"
BODIES = "calls in data-dependent branches are not drawn: the data decide which of them run, and how often"


def picture_of_plan(plan: Plan, graphs: Sequence[Graph] = (), runs: Sequence[Recorded] = ()) -> Picture:
    """Builds the picture of a plan, with its dataflow at earlier phases and its recorded runs, if there are any."""
    named = [_by_names_of(plan, run) for run in runs if run.program in ("", plan.name)]
    streams = chain.from_iterable(plan.all_streams) if named else ()
    has = {(s.island, i.step, i.name) for s in streams for i in s.instructions if isinstance(i, Run)}
    mine = [r for r in named if any((row.island, c.step, c.name) in has for row in r.rows for c in row.cells)]
    notes = [] if graphs else [NO_PHASES]
    notes += [BODIES] if plan.bodies else []
    if runs and not named:
        notes.append(f"the trace has runs of {runs[-1].program}, none of {plan.name}")
    elif len(mine) < len(named):
        notes.append(
            f"{len(named) - len(mine)} runs of the trace are of another plan of {plan.name}, and are not drawn"
        )
    return Picture(plan.name, plan, graphs, mine, notes)


def _by_names_of(plan: Plan, run: Recorded) -> Recorded:
    """Renames the islands of a recorded run to the names in the plan.

    A process that has islands of one name and several sizes appends the size (`islands.py` of the runtime).
    """
    names = {f"{i.name}({i.size})": i.name for i in plan.topology.islands}
    rows = tuple(replace(row, island=names.get(row.island, row.island)) for row in run.rows)
    return Recorded(run.number, run.program, rows)


def picture_of_trace(path: Path) -> Picture:
    """Builds the picture of a trace without its plan: the work of each device. Raises PWC0822."""
    runs = read_trace(path)
    return Picture(runs[-1].program or path.stem, None, (), runs, [ONLY_TRACE])
