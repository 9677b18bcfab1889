"""Draws a table of states: states in a row, events that lead forward above it, events that lead back below."""

from dataclasses import dataclass
from itertools import count
from typing import Any

from generate.svg import Drawing

WIDTH_PX, HEIGHT_PX, STEP_PX, LANE_PX = 92, 30, 150, 26


@dataclass(frozen=True)
class _Way:
    """An arrow from one state to another, by position in the row. `start` and `end` are its x coordinates in pixels."""

    source: int
    target: int
    label: str
    start: float
    end: float

    @property
    def left(self) -> float:
        return min(self.start, self.end)

    @property
    def right(self) -> float:
        return max(self.start, self.end, self.left + 7 * len(self.label))


def states_picture(states: Any) -> str:
    """Draws one table of `runtime/states.py`."""
    names = _in_order(states)
    ways = _ways(states, names)
    above, below = (_lanes([way for way in ways if (way.target > way.source) is on]) for on in (True, False))
    top = 14 + LANE_PX * len(above)
    stays = {name: [event for event, to in states.table[name].items() if to == name] for name in names}
    drawing = Drawing(
        int(len(names) * STEP_PX), int(top + HEIGHT_PX + LANE_PX * len(below) + 16 * any(stays.values()) + 14)
    )
    for i, name in enumerate(names):
        is_end = not set(states.table[name].values()) - {name}
        drawing.box(i * STEP_PX + 8, top, WIDTH_PX, HEIGHT_PX, name, "pale" if is_end else "full")
        if stays[name]:
            drawing.text(
                i * STEP_PX + 8 + WIDTH_PX / 2, top + HEIGHT_PX + 13, f"stays: {', '.join(stays[name])}", "small"
            )
    for lanes, edge, sign in ((above, top, -1), (below, top + HEIGHT_PX, 1)):
        for number, lane in enumerate(lanes):
            y = edge + sign * (LANE_PX * (number + 0.6) + 16 * (sign > 0 and any(stays.values())))
            for way in lane:
                drawing.arrow((way.start, edge), (way.start, y), (way.end, y), (way.end, edge))
                drawing.text((way.start + way.end) / 2, y - 4, way.label, "small")
    return drawing.svg()


def _in_order(states: Any) -> list[str]:
    """Returns the states in an order in which each follows one that leads to it. Final states come last."""
    found = [states.first]
    for name in found:
        found += [to for to in dict.fromkeys(states.table[name].values()) if to not in found]
    return sorted(found, key=states.is_end)


def _ways(states: Any, names: list[str]) -> list[_Way]:
    """Returns the arrows between states. Arrows at the same box end at different points."""
    events: dict[tuple[int, int], list[str]] = {}
    for source, name in enumerate(names):
        for event, to in states.table[name].items():
            if to != name:
                events.setdefault((source, names.index(to)), []).append(event)
    ends: dict[tuple[int, bool], int] = {}

    def place(state: int, is_above: bool) -> float:
        taken = ends[state, is_above] = ends.get((state, is_above), -1) + 1
        return state * STEP_PX + 16 + 12 * taken

    return [
        _Way(source, target, ", ".join(of), place(source, target > source), place(target, target > source))
        for (source, target), of in sorted(events.items(), key=lambda item: abs(item[0][0] - item[0][1]))
    ]


def _lanes(ways: list[_Way]) -> list[list[_Way]]:
    """Assigns arrows to lanes. Arrows that do not overlap share a lane; the shortest are next to the boxes."""
    lanes: list[list[_Way]] = []
    for way in ways:
        for number in count():
            if number == len(lanes):
                lanes.append([])
            if all(way.right + 8 < other.left or other.right + 8 < way.left for other in lanes[number]):
                lanes[number].append(way)
                break
    return lanes
