"""Compiles the modules of a plan in parallel, or reads their code from a cache. `loaded_part.py` calls it before it
prepares the instructions of the plan.

Threads help, since XLA releases Python's lock while it compiles.
"""

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.executable_cache import Executables, Owner, Wanted
from pathways.runtime.host.devices.layouts import Sides
from pathways.runtime.host.load.launches import code_of


def load_ahead(plan: Plan, sides: Sides, executables: Executables) -> None:
    """Compiles or reads the code of a plan and of its bodies, with one thread per core."""
    wanted: dict[Wanted, Owner] = {}
    for run in plan.runs():
        computation = plan.computations[run.computation]
        if not computation.callbacks:  # code with callbacks is never shared: its step compiles it with its functions
            owner = run.name, run.where
            wanted.update(dict.fromkeys(code_of(computation, sides.devices(run.mesh)), owner))
    executables.load_all(wanted)
