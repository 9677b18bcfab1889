"""What a plan will run, compiled or read all at once: XLA lets other threads of Python go on meanwhile."""

from collections.abc import Iterator

from pathways.dialect.plan import Plan, Run
from pathways.runtime import alone
from pathways.runtime.executables import Executables, Wanted
from pathways.runtime.steps import Sides


def load_ahead(plan: Plan, sides: Sides, executables: Executables) -> None:
    """Makes the code of a plan and of its bodies by as many threads as there are cores."""
    executables.load_all(dict.fromkeys(w for run in plan.runs() for w in _wanted(plan, run, sides)))


def _wanted(plan: Plan, run: Run, sides: Sides) -> Iterator[Wanted]:
    computation, devices = plan.computations[run.computation], sides.devices(run.mesh)
    if computation.callbacks:  # of this run alone, and compiled with what it calls
        return
    if alone.is_alone(computation):
        yield from ((computation.local, (device,)) for device in devices)
    else:
        yield computation.module, devices
