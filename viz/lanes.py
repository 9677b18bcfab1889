"""Groups the devices of each island that execute the same tasks, so that a drawn schedule has one row for all of them.
Pure functions.
"""

from dataclasses import dataclass

from pathways.compiler.simulate.work import Device, Work


@dataclass(frozen=True)
class Lane:
    """Devices of an island that execute the same tasks. `slices` are the virtual slices bound there."""

    stream: int
    island: str
    devices: tuple[int, ...]
    slices: tuple[str, ...]
    tasks: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.island} {', '.join(self.slices)}".rstrip()


def lanes_of(work: Work) -> list[Lane]:
    """Groups the devices of each island by their tasks, in the order of the plan's streams."""
    done: dict[Device, list[int]] = {}
    for task in work.tasks:
        for device in task.devices:
            done.setdefault(device, []).append(task.number)
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for (stream, device), tasks in sorted(done.items()):
        alike.setdefault((stream, tuple(tasks)), []).append(device)
    plan = work.plan
    lanes: list[Lane] = []
    for (stream, tasks), devices in alike.items():
        island = plan.streams[stream].island
        here = [s for s in plan.slices if s.island == island and set(s.devices) & set(devices)]
        lanes.append(Lane(stream, island, tuple(devices), tuple(s.name for s in here), tasks))
    return lanes
