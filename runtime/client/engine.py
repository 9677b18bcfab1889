"""Defines the interface `Engine`, through which a loaded plan runs. One implementation uses devices of this process,
the other uses hosts in other processes. `LoadedPlan` calls it for every run.

`Input` calls `prepare_move` for arguments on other devices.
"""

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
from pathways.runtime.host.load.callback_launches import CallbacksOfOneLaunch
from pathways.runtime.host.load.costs import IslandCost
from pathways.runtime.host.load.local_engine import LocalEngine
from pathways.runtime.host.run.dispatch import Dispatch
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.runs_in_flight import Launch


class Engine(Protocol):
    """A loaded plan. Slots are numbered over all islands; `offsets` has the first slot of each island."""

    @property
    def size(self) -> int:
        """Returns the number of slots."""
        ...

    @property
    def offsets(self) -> Mapping[str, int]: ...
    @property
    def types(self) -> Mapping[int, tuple[ArrayType, Layout]]: ...
    @property
    def sides(self) -> Sides: ...
    @property
    def times_scheduled(self) -> float:
        """Returns the number of slots a run uses while other runs wait; a moving average if it depends on data."""
        ...

    @property
    def constants(self) -> Sequence[tuple[int, Any]]:
        """Returns the slots that hold arrays of this process before a run begins."""
        ...

    def put_constants(self) -> None:
        """Creates the constant arrays, again after lost devices have returned."""
        ...

    @property
    def bytes_between(self) -> Mapping[str, int]:
        """Returns the bytes per device that a run needs for transfers between hosts, in addition to the plan's peaks.

        The keys are islands.
        """
        ...

    @property
    def awaits(self) -> bool:
        """Whether a run must wait for values before it is completely enqueued."""
        ...

    @property
    def pauses(self) -> bool:
        """Whether other runs may be enqueued during a run."""
        ...

    def prepare_put(self, number: int, type_: ArrayType, side: Side) -> "Callable[[np.ndarray[Any, Any]], Any]":
        """Prepares to copy arguments of an input (by number), in their stored form, to the location that it needs."""
        ...

    def get_ready(self, client: str) -> None:
        """Waits for what a run of a client needs before it takes a slot, so that it does not block other runs.

        `client` is its label. Raises PWC0910.
        """
        ...

    @property
    def is_quick(self) -> bool:
        """Whether a run may be enqueued `ahead`: it waits only for callbacks that were fast in the previous run."""
        ...

    def enqueue(self, frame: Frame, run: Dispatch, *, ahead: bool = False) -> Sequence[Awaited]:
        """Enqueues a run. Its arguments are in the frame, and so are its results when this method returns.

        `ahead`: returns before the callbacks return. Results are valid after the caller has waited for the returned
        objects.
        """
        ...

    @property
    def only_step(self) -> Step | None:
        """The step of a plan that consists of one launch in this process and waits only for callbacks; else None."""
        ...

    @property
    def only_callbacks(self) -> CallbacksOfOneLaunch | None:
        """The callbacks of `only_step`, if it has any."""
        ...

    @property
    def launches(self) -> Sequence[Launch]:
        """The launches of a run in this process."""
        ...

    def costs(self) -> dict[str, IslandCost]:
        """Returns XLA's operation and byte counts of a run, by island."""
        ...


def prepare_move(controller: Controller, type_: ArrayType, source: Side, side: Side) -> Callable[[Any], Any]:
    """Prepares to move arrays from `source`, the result layout of one program, to where another program needs them.

    An array on a machine other than the current one (a cluster, or this process) is copied through this process.
    """
    machine, executables = controller.machine, controller.executables
    if machine.island_of(source.devices[0]) is None:
        return lambda array: put_values(machine, fetched(array), type_, side)
    if isinstance(machine, Hosts):
        return remote_mover(machine, type_, source, side)
    found = transfers.prepare_transfer(
        type_, source, side, lambda text, device: executables.load(text, [device]), may_use_host=True
    )
    return found.move


def load_engine(
    plan: Plan, islands: dict[str, PhysicalIsland], controller: Controller, path: str, *, sequential: bool
) -> Engine:
    """Loads a plan on the machine of its islands."""
    machine = controller.machine
    if isinstance(machine, Hosts):
        return RemoteEngine(plan, machine, islands, path, sequential=sequential)
    return LocalEngine(plan, islands, controller.executables, path, sequential=sequential)
