"""Formats pipeline actions as short labels for pictures: `F3` is the forward pass of microbatch 3."""

from collections.abc import Iterable

from pathways.compiler.simulate.work import PlannedTask
from pathways.dialect.call_labels import Action

WORDS = {"F": "forward", "B": "backward", "I": "backward of the input", "W": "backward of the weights"}


def short_actions(actions: Iterable[Action], with_stage: bool) -> str:
    """Formats actions as `F3`, or `2F3` with the stage, joined by +."""
    return "+".join(f"{a.stage if with_stage else ''}{a.kind}{a.microbatch}" for a in actions)


def several_stages(tasks: Iterable[PlannedTask]) -> bool:
    """Whether the tasks belong to more than one stage, so that their labels must name it."""
    return len({action.stage for task in tasks for action in task.parts}) > 1
