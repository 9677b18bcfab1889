"""Draws the schedules: the actions of three slices over time, in the order of each schedule."""

from itertools import pairwise

from generate.svg import Drawing
from pathways.compiler.schedule import SCHEDULES, ZERO_BUBBLE, Pipeline
from pathways.compiler.schedule.arrange import UNITS
from pathways.compiler.schedule.timeline import Precedence, play
from pathways.dialect.call_labels import Action

STAGES, MICROBATCHES, UNIT_PX, ROW_PX = 3, 4, 24, 24
KIND = {"F": "full", "B": "", "I": "", "W": "dashed"}
SHOWN = ("gpipe", "1f1b", ZERO_BUBBLE)


def schedules() -> str:
    """Draws a row for each slice and a box for each action, as wide as its time: a forward one unit, a backward two."""
    drawing = Drawing(110 + UNIT_PX * 19, len(SHOWN) * (STAGES * (ROW_PX + 4) + 22) + 24)
    for i, name in enumerate(SHOWN):
        top = 8 + i * (STAGES * (ROW_PX + 4) + 22)
        drawing.text(8, top + STAGES * (ROW_PX + 4) / 2 + 2, name, "left")
        for action, start in starts(name).items():
            width = UNIT_PX * UNITS[action.kind] - 2
            y = top + action.stage * (ROW_PX + 4)
            drawing.box(100 + UNIT_PX * start, y, width, ROW_PX, f"{action.kind}{action.microbatch}", KIND[action.kind])
    drawing.text(
        100, drawing.height - 8, "F forward   B backward   I, W its two parts   time to the right", "small left"
    )
    return drawing.svg()


def starts(schedule: str) -> dict[Action, float]:
    """Returns the start of each action of a schedule, in units of a forward."""
    back = "IW" if schedule == ZERO_BUBBLE else "B"
    actions = [Action(s, "F", m) for m in range(MICROBATCHES) for s in range(STAGES)]
    actions += [Action(s, k, m) for m in range(MICROBATCHES) for s in reversed(range(STAGES)) for k in back]
    number = {action: i for i, action in enumerate(actions)}
    table = SCHEDULES[schedule](Pipeline(tuple("abc"), (0, 1, 2), MICROBATCHES, {a: (i,) for a, i in number.items()}))
    behind: list[tuple[int, ...]] = [()] * len(actions)
    for row in table:
        for before, action in pairwise(row):
            behind[number[action]] = (number[before],)
    waits = [tuple(number[w] for w in _awaited(action, back) if w in number) for action in actions]
    graph = Precedence(waits, [a.stage for a in actions], [float(UNITS[a.kind]) for a in actions])
    return dict(zip(actions, play(graph, behind).starts, strict=True))


def _awaited(action: Action, back: str) -> list[Action]:
    """Returns the inputs of an action: the forward of the previous stage, the backward of the next, its own forward."""
    stage, microbatch = action.stage, action.microbatch
    if action.kind == "F":
        return [Action(stage - 1, "F", microbatch)]
    if action.kind == "W":
        return [Action(stage, "I", microbatch)]
    return [Action(stage, "F", microbatch), Action(stage + 1, back[0], microbatch)]
