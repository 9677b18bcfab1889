"""Which action of a pipeline each fragment is: its stage, forward or backward, and its microbatch.

Before PARTITION fragments say it in attributes; where users assign meshes and no stages, each mesh is one. After it,
only the names of their functions do, and equal ones share one: `p2_stage1_bwd_calls1to3.step` is called for microbatch
1 first, and for 3 last.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pathways.dialect.call_labels import read_action
from pathways.dialect.shardy_mpmd import ACTIONS, NO_ACTION

_TRANSPOSED = re.compile(r"\((\d+)\)")
_PROGRAM = re.compile(r"p\d+_")
_CALLEE = re.compile(r"(?:p\d+_)?stage(?P<stage>\d+)_(?P<kind>fwd|bwd)_calls?(?P<first>\d+)(?:to(?P<last>\d+))?$")
FORWARD, BACKWARD = "F", "B"
STAGE = "stage_id"


def uncounted(said: Iterable[tuple[str, str]]) -> str | None:
    """Says why actions, each on a mesh, are of no pipeline: a part of one, a stage in two places; None if they are."""
    homes: dict[int, str] = {}
    microbatches: set[int] = set()
    for text, mesh in said:
        try:
            action = read_action(text)
        except ValueError:
            return f"{text} is no action"
        microbatches.add(action.microbatch)
        if homes.setdefault(action.stage, mesh) != mesh:
            return f"stage {action.stage} is on {homes[action.stage]} and {mesh}"
    for what, found in (("stage", homes), ("microbatch", microbatches)):
        if missing := set(range(len(found))).difference(found):
            return f"there is no {what} {min(missing)}"
    return None


class Actions:
    """Names of fragments, and their actions; calls must be asked for in their order."""

    def __init__(self, stages: Mapping[str, int] | None = None) -> None:
        """`stages` of meshes by name, for a program whose fragments state no stages of their own."""
        self._stages = stages or {}
        self._called: Counter[str] = Counter()

    def of_fragment(self, attributes: Any, mesh: str) -> tuple[str, str | None]:
        """The name of a fragment, and its action as `2F3`; None for what is of no stage, or of all microbatches."""
        stage, counter = (attributes[k].value if k in attributes else None for k in (STAGE, "call_counter"))
        if counter is not None and stage is None:
            stage = self._stages.get(mesh)
        backward = any(int(n) for n in _TRANSPOSED.findall(str(attributes["origin"])))
        if stage is None:
            return f"{mesh}_{'backward' if backward else 'forward'}", None
        name = f"stage{stage}_{'bwd' if backward else 'fwd'}"
        return name, None if counter is None else f"{stage}{BACKWARD if backward else FORWARD}{counter}"

    def of_call(self, callee: str, attributes: Any) -> tuple[str, str | None]:
        """The same of a call of a function: what this project has written beside it, or else by the function's name."""
        name, action = self.of_callee(callee)
        if ACTIONS not in attributes:
            return name, action
        (first, *others) = (part.value for part in attributes[ACTIONS])
        return name, None if others or first == NO_ACTION else first

    def of_callee(self, callee: str) -> tuple[str, str | None]:
        """The same, by the name of the function that a fragment calls."""
        number = self._called[callee]
        self._called[callee] += 1
        name = callee.partition(".")[0]
        found = _CALLEE.match(name)
        if found is None:
            return _PROGRAM.sub("", name, count=1), None
        microbatch = int(found["first"]) + number
        kind = BACKWARD if found["kind"] == "bwd" else FORWARD
        known = microbatch <= int(found["last"] or found["first"])
        return f"stage{found['stage']}_{found['kind']}", f"{found['stage']}{kind}{microbatch}" if known else None
