"""Finds the place of each fragment (one computation of an MPMD program) in a pipeline: its stage, its direction, its
microbatch. It also checks that all these places are of one pipeline. If not, the program is imported without them.
`read.py` uses this while it imports a program.

Before PARTITION, attributes of fragments state the action. If users assign meshes but no stages, each mesh is a stage.
After PARTITION, only function names state it, and equal fragments share a function. For example,
`p2_stage1_bwd_calls1to3.step` is called for microbatch 1 first, and for microbatch 3 last.
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


def uncounted(labels: Iterable[tuple[str, str]]) -> str | None:
    """Explains why actions, each with its mesh, are not of one pipeline; None if they are.

    Examples: a stage or a microbatch is missing, or a stage is on two meshes.
    """
    homes: dict[int, str] = {}
    microbatches: set[int] = set()
    for text, mesh in labels:
        try:
            action = read_action(text)
        except ValueError:
            return f"{text} is not an action"
        microbatches.add(action.microbatch)
        if homes.setdefault(action.stage, mesh) != mesh:
            return f"stage {action.stage} is on {homes[action.stage]} and {mesh}"
    for what, found in (("stage", homes), ("microbatch", microbatches)):
        if missing := set(range(len(found))).difference(found):
            return f"there is no {what} {min(missing)}"
    return None


class Actions:
    """Names and actions of fragments. Calls must be passed in program order."""

    def __init__(self, stages: Mapping[str, int] | None = None) -> None:
        """`stages` maps meshes to stages, for a program whose fragments state no stages."""
        self._stages = stages or {}
        self._called: Counter[str] = Counter()

    def of_fragment(self, attributes: Any, mesh: str) -> tuple[str, str | None]:
        """Returns a fragment's name and its action as `2F3`; None if it has no stage, or is for all microbatches."""
        stage, counter = (attributes[k].value if k in attributes else None for k in (STAGE, "call_counter"))
        if counter is not None and stage is None:
            stage = self._stages.get(mesh)
        backward = any(int(n) for n in _TRANSPOSED.findall(str(attributes["origin"])))
        if stage is None:
            return f"{mesh}_{'backward' if backward else 'forward'}", None
        name = f"stage{stage}_{'bwd' if backward else 'fwd'}"
        return name, None if counter is None else f"{stage}{BACKWARD if backward else FORWARD}{counter}"

    def of_call(self, callee: str, attributes: Any) -> tuple[str, str | None]:
        """Returns the name and action of a call: from this project's attribute, or from the function's name."""
        name, action = self.of_callee(callee)
        if ACTIONS not in attributes:
            return name, action
        (first, *others) = (part.value for part in attributes[ACTIONS])
        return name, None if others or first == NO_ACTION else first

    def of_callee(self, callee: str) -> tuple[str, str | None]:
        """Returns the name and action of a call, from the name of the called function."""
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
