"""Implements `pw.testing`, with which users test how their programs behave after a failure. It makes a computation
fail, slow or hang, and simulates the loss of a device.
"""

import contextlib
import json
from collections.abc import Generator

from pathways.api.process import process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.platforms import platform_named
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe import faults
from pathways.runtime.host.observe.fault_steps import FaultSteps
from pathways.runtime.host.observe.faults import Fault as Fault
from pathways.runtime.host.observe.faults import InjectedFault as InjectedFault
from pathways.runtime.wire.errors import NotOverProcesses


@contextlib.contextmanager
def fault(
    kind: str,
    *,
    program: str | None = None,
    computation: str | None = None,
    step: int | None = None,
    client: str | None = None,
    device: int = 0,
    seconds: float = 0.1,
    times: int = 1,
    after: int = 0,
    message: str = "injected",
) -> Generator[Fault]:
    """Injects a fault, during the block, at the next step that meets all conditions, `times` times.

    The first `after` such steps run without it. `kind` is `raise`, `delay`, `hang` or `lose`. `raise`: a host callback
    raises InjectedFault on one device of the step's gang; its results, and everything that depends on them, are poison.
    `delay`: one device is delayed for `seconds`. `hang`: one device hangs forever, and the watchdog ends the process
    with exit code 4. `lose`: the device is lost, with everything that has a shard on it.

    `device` is a position in the gang. `computation` is a name as in `pwc inspect`, or the name of a part of a merged
    call. `client` is a name as in `pw.status()`, on a shared cluster without its end ` of ...`. Yields the fault, whose
    `happened` counts. The end of the block waits for runs that are enqueued in the background (loops on data). It
    raises PWC0104 if the fault never happened.

        with pw.testing.fault("raise", computation="stage1", device=2):
            train_step(params, batch)
    """
    if kind not in faults.FAULT_KINDS:
        problem, rule = "there is no such kind of fault", f"one of {', '.join(faults.FAULT_KINDS)}"
        error = BadArguments(
            problem=problem, have_=repr(kind), rule=rule, advice="pw.testing.fault('raise')", where=caller()
        )
        raise PathwaysError(error)
    if kind != "lose" and platform_named(process().platform).callback is None:
        problem, have = f"a fault of kind {kind!r} needs host callbacks", f"devices of {process().platform}"
        rule, advice = "a platform with host callbacks: see dialect/platforms.py", "pw.testing.fault('lose')"
        raise PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller()))
    made = Fault(kind, program, computation, step, client, device, seconds, times, after, message)
    controller = process().controller
    if isinstance(controller.machine, Hosts):
        with _on_hosts(controller.machine, made):
            yield made
            controller.flights.drain()
        return
    steps = FaultSteps(made, controller.executables, controller.machine.take_launches, controller.lose)
    with controller.observed_by(steps):
        yield made
        controller.background.drain()
    _check_happened(made)


def _check_happened(made: Fault) -> None:
    if made.happened:
        return
    conditions = _conditions(made)
    raise PathwaysError(
        BadArguments(
            problem=f"the fault {made.kind!r} never happened: no step met its conditions",
            have_=f"{conditions}, after the first {made.after}" if made.after else conditions,
            rule="a run of such a step inside the with block",
            advice="use names that pwc inspect shows, and call the program inside the with block",
            where=caller(),
        )
    )


def _conditions(made: Fault) -> str:
    names = ("program", "computation", "step", "client")
    wanted = {name: value for name in names if (value := getattr(made, name)) is not None}
    return ", ".join(f"{name}={value!r}" for name, value in wanted.items()) or "any step"


@contextlib.contextmanager
def _on_hosts(cluster: Hosts, made: Fault) -> Generator[None]:
    """Injects a fault into the steps of a cluster's hosts. Raises PWC0912 for conditions that hosts cannot check."""
    if made.computation is None and made.step is None:
        have = f"a fault of kind {made.kind!r} at {_conditions(made)}"
        rule = "computation= or step=: a host cannot tell which step is next on the whole cluster"
        raise PathwaysError(NotOverProcesses(what="this fault", have_=have, rule=rule, where=caller()))
    names = ("kind", "program", "computation", "step", "client", "device", "seconds", "times", "after", "message")
    cluster.inject(json.dumps({name: getattr(made, name) for name in names}))
    try:
        yield
    finally:
        made.happened = cluster.inject("")
    _check_happened(made)


def lose_device(island: str, device: int = 0, reason: str = "lost on purpose") -> None:
    """Simulates the loss of a device, by the names in `pw.status()`. Its programs are placed again at the next call."""
    process().controller.lose(_island(island, device), device, reason)


def return_device(island: str, device: int = 0) -> None:
    """Returns a lost device to use, without any arrays on it."""
    process().machine.recover(_island(island, device), device)


def _island(name: str, device: int) -> PhysicalIsland:
    found = process().machine.named(name)
    if found is None or not 0 <= device < len(found.devices):
        known = ", ".join(f"{i.key} (devices 0 to {len(i.devices) - 1})" for i in process().machine.islands)
        have, rule = f"device {device} of {name!r}", known or "an island: the first program creates one"
        error = BadArguments(
            problem="there is no such device",
            have_=have,
            rule=rule,
            advice="use names that pw.status() shows",
            where=caller(),
        )
        raise PathwaysError(error)
    return found
