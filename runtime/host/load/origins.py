"""Finds which computation makes each result of a plan, with its source line. Error messages about a failed result name
this computation.
"""

from pathways.dialect.plan.instructions import Branch, Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.run.poison import Origin


def origins_of(plan: Plan) -> list[Origin]:
    """Returns the name, island and source line of each result's computation; `the program` if none makes it."""
    makers = {
        (s.island, slot): i
        for s in plan.streams
        for i in s.instructions
        if isinstance(i, Run | Branch)
        for slot in i.outputs
    }
    found: list[Origin] = []
    for port in plan.results:
        maker = makers.get((port.island, port.slot))
        found.append((maker.name if maker else "the program", port.island, maker.where if maker else None))
    return found
