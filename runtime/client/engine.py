"""What runs a loaded plan: the devices of this process, or hosts in processes of their own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.runtime.client.arrays import fetched
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.client.remote.remote_engine import RemoteEngine
from pathways.runtime.client.remote.remote_moves import put_values, remote_mover
from pathways.runtime.host.devices import transfers
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Side, Sides
from pathways.runtime.host.load.costs import IslandCost
from pathways.runtime.host.load.local_engine import LocalEngine
from pathways.runtime.host.run.dispatch import Dispatch
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import Frame


class Engine(Protocol):
    """A plan, loaded. Slots are numbered over all islands: `offsets` has the first of each."""

    @property
    def size(self) -> int:
        """The number of slots."""
        ...

    @property
    def offsets(self) -> Mapping[str, int]: ...
    @property
    def types(self) -> Mapping[int, tuple[ArrayType, Layout]]: ...
    @property
    def sides(self) -> Sides: ...
    @property
    def turns(self) -> float:
        """Turns that a run takes while other runs wait for theirs; a moving average where that depends on data."""
        ...

    @property
    def constants(self) -> Sequence[tuple[int, Any]]:
        """Slots that hold arrays of this process before a run begins."""
        ...

    def put_constants(self) -> None:
        """Makes those arrays, again where devices were lost and are back."""
        ...

    @property
    def bytes_between(self) -> Mapping[str, int]:
        """Bytes that a run takes on a device of each island for what goes between hosts, beside the plan's peaks."""
        ...

    @property
    def awaits(self) -> bool:
        """Whether a run waits for values before all of it is enqueued."""
        ...

    @property
    def pauses(self) -> bool:
        """Whether other runs may be enqueued while one is."""
        ...

    def put(self, number: int, array: "np.ndarray[Any, Any]", type_: ArrayType, side: Side) -> Any:
        """Puts the argument of an input (by number), in its stored form, where the plan wants it."""
        ...

    def get_ready(self) -> None:
        """Waits for what a run needs beside its turn, which keeps other runs from theirs. Raises PWC0910."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether a run may be enqueued `ahead`: it awaits only callbacks that returned soon in the run before."""
        ...

    def enqueue(self, frame: Frame, run: Dispatch, *, ahead: bool = False) -> Sequence[Awaited]:
        """Enqueues a run: its arguments are in the frame, and so are its results when this returns.

        `ahead`: returns before its callbacks have; the caller waits for what is returned, or the results may be wrong.
        """
        ...

    def costs(self) -> dict[str, IslandCost]:
        """The operations and bytes that XLA counts of a run, by island."""
        ...


def prepare_move(controller: Controller, type_: ArrayType, source: Side, side: Side) -> Callable[[Any], Any]:
    """Prepares to move arrays that lie at `source`, of one program, to where another wants them.

    What lies on another machine (a cluster, or this process where islands are not) moves through this process.
    """
    machine, executables = controller.machine, controller.executables
    if machine.island_of(source.devices[0]) is None:
        return lambda array: put_values(machine, fetched(array), type_, side)
    if isinstance(machine, Hosts):
        return remote_mover(machine, type_, source, side)
    return transfers.prepare_transfer(type_, source, side, lambda text, device: executables.load(text, [device])).move


def load_engine(
    plan: Plan, islands: dict[str, PhysicalIsland], controller: Controller, path: str, *, sequential: bool
) -> Engine:
    """Loads a plan where its islands are."""
    machine = controller.machine
    if isinstance(machine, Hosts):
        return RemoteEngine(plan, machine, islands, path, sequential=sequential)
    return LocalEngine(plan, islands, controller.executables, path, sequential=sequential)
