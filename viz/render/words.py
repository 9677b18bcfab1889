"""How the actions of a pipeline are written in pictures."""

from collections.abc import Iterable

from pathways.dialect.call_labels import Action
from pathways.viz.work import PlannedTask

WORDS = {"F": "forward", "B": "backward", "I": "backward of the input", "W": "backward of the weights"}


def short_actions(actions: Iterable[Action], with_stage: bool) -> str:
    """Writes `F3`, or `2F3` with its stage; several with + between them."""
    return "+".join(f"{a.stage if with_stage else ''}{a.kind}{a.microbatch}" for a in actions)


def several_stages(tasks: Iterable[PlannedTask]) -> bool:
    """Whether tasks are of more than one stage, so that what is written of them must say which."""
    return len({action.stage for task in tasks for action in task.parts}) > 1
