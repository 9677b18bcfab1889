"""Formats the table that `pwc compile --compare-schedules` prints: simulated step time, pipeline bubble and memory of
each schedule. It adds a remark if a schedule is faster in spite of a larger bubble.
"""

from collections.abc import Sequence

from pathways.api.summary import size, table
from pathways.compiler.compare_schedules import Alternative
from pathways.compiler.placement.runner_up import seconds

_UNITS = "(B counts 2 units, its parts I and W 1 each; a stage whose input needs no gradient has only W)"


def comparison(outcomes: Sequence[Alternative]) -> str:
    """Formats a row for each schedule. The simulated step time decides and comes first; bubbles assume equal work."""
    rows = [["compared", "step (simulated)", "devices wait", "bubble", "at least", "memory, the fullest island"]]
    for found in outcomes:
        schedule = found.schedule
        if schedule is None or not schedule.microbatches:
            rows.append([found.name, *["-"] * 4, found.refused or (schedule.note if schedule else "")])
            continue
        island = max(found.peaks, key=lambda i: found.peaks[i])
        figures = (found.waits, schedule.bubble, schedule.bound)
        shown = f"{size(found.peaks[island])} on {island}"
        rows.append([found.name, seconds(found.seconds), *(f"{f:.1%}" for f in figures), shown])
    return "\n".join([table(rows), *(f"  {line}" for line in _excuses(outcomes))])


def _excuses(outcomes: Sequence[Alternative]) -> list[str]:
    """Formats a line for each schedule that is faster in spite of a larger bubble, because its run is shorter."""
    lines: list[str] = []
    for found in outcomes:
        mine = found.schedule
        for other in outcomes:
            theirs = other.schedule
            if mine is None or theirs is None or not theirs.microbatches:
                continue
            if mine.bubble > theirs.bubble and found.units < other.units and found.seconds < other.seconds:
                lines.append(
                    f"{found.name}: {mine.bubble:.1%} of {found.units:g} units of time is less than "
                    f"{theirs.bubble:.1%} of {other.units:g} ({other.name}): it has less work, and completes sooner"
                )
                break
    return [*lines, _UNITS] if lines else []
