"""Runs a body that is one launch without a frame. The condition of a loop is such a body: `control_flow.py` runs it in
each turn.
"""

from collections.abc import Sequence
from typing import Any

from pathways.runtime.host.run.frame import AtOnce, Start, Step


class SingleLaunch:
    """The only launch of a body. It takes the operands of the body, and makes its results."""

    def __init__(
        self,
        start: Start,
        at_once: AtOnce,
        constants: Sequence[tuple[int, Any]],
        inputs: Sequence[int],
        results: Sequence[int],
    ) -> None:
        self._start, self._at_once, self._row = start, at_once, start.row(constants)
        self._places = [start.places(slot) for slot in inputs]
        self._results = [start.outputs.index(slot) for slot in results]

    def __call__(self, operands: Sequence[Any], launch_id: int) -> tuple[Sequence[Any], list[Any]]:
        """Launches; returns tokens, and the results of the body. They are poison if the launch fails."""
        row = self._row.copy()
        for value, places in zip(operands, self._places):  # noqa: B905 -- `strict` takes longer than the loop
            for place in places:
                row[place] = value
        try:
            due = self._start.gang.admit()
            tokens, made = self._at_once.start(row, launch_id)
            if due:
                self._at_once.keep(tokens, made)
        except Exception as error:  # any error must reach dependents, as in `launch_step`
            tokens, made = (), self._start.failed(row, error)
        return tokens, [made[n] for n in self._results]


def single_launch(
    steps: Sequence[Step], constants: Sequence[tuple[int, Any]], inputs: Sequence[int], results: Sequence[int]
) -> SingleLaunch | None:
    """Prepares the only launch of a body; returns None if it has other steps, or does not only return results."""
    if len(steps) != 1 or (start := steps[0].start) is None or (at_once := steps[0].at_once) is None:
        return None
    return SingleLaunch(start, at_once, constants, inputs, results) if set(results) <= set(start.outputs) else None
