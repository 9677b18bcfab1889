"""Formats the simulated variants of a program as a table, for `pwc simulate`."""

from collections.abc import Mapping, Sequence
from textwrap import shorten

from pathways.cli.simulate_variants import NOT_TRIED
from pathways.compiler.simulate.estimate import Outcome
from pathways.compiler.simulate.figures import StepFigures
from pathways.dialect.topology import readable

MAX_ROWS = 20
"""Combinations that a sweep prints, the fastest first. Its picture and --json have all."""


def variants_table(
    found: StepFigures | None, others: Mapping[str, Outcome], *, sweep: bool, shown: int = MAX_ROWS, note: str = ""
) -> list[str]:
    """Formats the variants beside the one that was asked for. A sweep begins with the fastest `shown`."""
    fastest = min((other.seconds for other in others.values() if isinstance(other, StepFigures)), default=0.0)
    base = fastest if found is None else found.seconds
    width = max(24, *map(len, others)) if sweep else 24
    if not sweep:
        rows = ["compared with" if found is not None else "in comparison"]
        for name, other in others.items():
            refused = f"  {name:<{width}} refused ({other})"
            rows.append(_row(name, other, base, width) if isinstance(other, StepFigures) else refused)
        return rows
    done = [(name, other) for name, other in others.items() if isinstance(other, StepFigures)]
    done.sort(key=lambda one: one[1].seconds)
    rows = [f"{len(others):,} other combinations, the fastest first"]
    rows += [_row(name, other, base, width) for name, other in done[:shown]]
    if left := sum(not isinstance(other, str) for other in others.values()) - len(rows) + 1:
        rows.append(f"  ... and {left:,} slower ones{note}: --json, --picture")
    return rows + _left_out([other for other in others.values() if isinstance(other, str)])


def _left_out(reasons: Sequence[str]) -> list[str]:
    counts = {why: reasons.count(why) for why in dict.fromkeys(reasons)}
    return [
        f"  {count} {why if why == NOT_TRIED else f'refused ({shorten(why, 160)})'}" for why, count in counts.items()
    ]


def _row(name: str, other: StepFigures, base: float, width: int) -> str:
    peak = max((island.peak_bytes for island in other.islands), default=0)
    ratio = other.seconds / base if base else 1.0
    time = f"{other.seconds * 1e3:10.4g} ms  {ratio:6.3f}x  waits {other.bubble:6.1%}"
    return f"  {name:<{width}} {time}  {readable(peak)} on the fullest"
