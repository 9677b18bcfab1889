"""Actions of a pipeline, as PyTorch's pipelining writes them: `2F3` is stage 2, forward, microbatch 3.

F is forward, B backward, I the part of a backward that gives the gradient of the stage's input, W the part that gives
the gradients of its weights.
"""

import re
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("F", "B", "I", "W")
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


@dataclass(frozen=True, order=True, slots=True)
class Action:
    """What one slice does for one microbatch."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


def read_action(text: str) -> Action:
    """Raises ValueError for anything else."""
    match = _ACTION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no action like 2F3: stage, F, B, I or W, microbatch")
    return Action(int(match[1]), match[2], int(match[3]))
