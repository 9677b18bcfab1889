"""Defines a fault to inject in tests of failures: its kind, and the conditions for a step to have it. It also makes the
small program that a gang runs before that step. On one device the program calls a Python function that raises, waits,
or never returns. `fault_steps.py` and `pw.testing` use it.

A fault is a separate program in the queues of the step's devices, right before the step. With a fault that raises, the
step is not launched before the outcome is known. The results of its whole gang are then poison. A delay or a hang
blocks one device. Launches that need this device, such as a collective, wait there. The step's results on the device
are ready when the fault ends.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import InternalError, PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.platforms import platform_named
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import Watched
from pathways.runtime.host.devices.transfers import program_text
from pathways.runtime.wire.errors import BadMessage

FAULT_KINDS = ("raise", "delay", "hang", "lose")


class InjectedFault(Exception):
    """The exception that a fault of kind `raise` raises in its host callback."""


_IS: Mapping[str, tuple[type, ...]] = {
    "kind": (str,), "program": (str, NoneType), "computation": (str, NoneType), "step": (int, NoneType),
    "client": (str, NoneType), "device": (int,), "seconds": (int, float), "times": (int,), "after": (int,),
    "message": (str,),
}  # fmt: skip
"""The types of a fault's fields in JSON."""


@dataclass(eq=False)
class Fault:
    """A fault to inject, and the conditions for a step to have it. A condition that is None is always met.

    `device` is a position in the gang of the step. The fault skips the first `after` steps that meet the conditions.
    It then happens `times` times. Both fields count down.
    """

    kind: str
    program: str | None = None
    computation: str | None = None
    step: int | None = None
    client: str | None = None
    device: int = 0
    seconds: float = 0.1
    times: int = 1
    after: int = 0
    message: str = "injected"
    happened: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def matches(self, plan: Plan, run: Run, client: str) -> bool:
        named = {run.name, *(read_part(p).name for p in run.parts)}
        wanted = (
            (self.program, {plan.name}),
            (self.computation, named),
            (self.step, {run.step}),
            (self.client, {client}),
        )
        return all(want is None or want in have for want, have in wanted)

    def take(self) -> bool:
        """Counts one more step that meets the conditions; returns whether the fault happens there."""
        with self._lock:
            if self.after > 0:
                self.after -= 1
                return False
            if self.times <= 0:
                return False
            self.times -= 1
            self.happened += 1
            return True


def read_fault(text: str) -> Fault:
    """Reads a fault from JSON: its fields, by name. Raises PWC0911 for invalid input."""
    try:
        read: dict[str, Any] = json.loads(text)
        fits = read["kind"] in FAULT_KINDS and all(type(value) in _IS[name] for name, value in read.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        fits, read = False, {}
    if not fits:
        have, rule = f"the fault {text[:80]}", f"a kind ({', '.join(FAULT_KINDS)}), and its fields"
        raise PathwaysError(BadMessage(have_=have, rule=rule))
    return Fault(**read)


@dataclass(eq=False)
class _Gang:
    """The program that injects faults into a gang. It is never freed: a callback must outlive its calls by devices."""

    executable: pjrt.Executable
    watched: Watched
    queues: list[deque[tuple[Fault, int]]]
    """For each device, the faults in its queue, in order."""


_gangs: dict[tuple[pjrt.Device, ...], _Gang] = {}


def bring_to(fault: Fault, devices: Sequence[pjrt.Device], position: int, name: str) -> tuple[pjrt.Executable, Watched]:
    """Returns the program that injects a fault on one device of a gang, to be launched next, and its callback."""
    gang = _gangs.get(tuple(devices))
    if gang is None:
        gang = _gangs[tuple(devices)] = _make(devices)
    gang.watched.computation, gang.watched.launch = f"{name} (injected {fault.kind})", name
    gang.watched.record.begin()
    for queues in gang.queues:
        queues.append((fault, position))
    return gang.executable, gang.watched


def _make(devices: Sequence[pjrt.Device]) -> _Gang:
    queues: list[deque[tuple[Fault, int]]] = [deque() for _ in devices]

    def happen(index: Any) -> Any:
        position = int(index[0])
        fault, target = queues[position].popleft()
        if position == target:
            _DO[fault.kind](fault)
        return (np.zeros(1, np.int32),)

    watched = Watched(happen, "")
    return _Gang(pjrt.compile_module(_module(len(devices), _call(devices[0])), devices, [watched]), watched, queues)


def _raise(fault: Fault) -> None:
    raise InjectedFault(fault.message)


def _delay(fault: Fault) -> None:
    time.sleep(fault.seconds)


def _hang(fault: Fault) -> None:
    threading.Event().wait()


_DO: dict[str, Callable[[Fault], None]] = {"raise": _raise, "delay": _delay, "hang": _hang}

_INDEX = "{has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}} : (tensor<1xi32>) -> tensor<1xi32>"


def waiting(type_: ArrayType) -> str:
    """Writes a program that returns its first operand once its second operand is ready, too."""
    return program_text([f"%x: {type_.mlir}", "%late: tensor<1xi32>"], [type_.mlir], [], ["%x"])


def _call(device: pjrt.Device) -> str:
    """Writes the custom call that calls Python on the device's platform. Raises InternalError if there is none."""
    target = platform_named(device.platform).callback
    if target is None:
        raise InternalError(f"{device.platform} calls Python in another way than by a custom call")
    return f"stablehlo.custom_call @{target}"


def _module(count: int, call: str) -> str:
    """Writes a program that calls Python from each of its devices, with the position of the device."""
    head = f"module @fault attributes {{mhlo.num_partitions = {count} : i32, mhlo.num_replicas = 1 : i32}} {{"
    if count == 1:
        return f"""{head}
  func.func public @main() -> tensor<1xi32> {{
    %p = stablehlo.constant dense<0> : tensor<1xi32>
    %r = {call}(%p) {_INDEX}
    return %r : tensor<1xi32>
  }}
}}"""
    split = '<@mesh, [{"gang"}]>'
    return f"""{head}
  sdy.mesh @mesh = <["gang"={count}]>
  func.func public @main() -> (tensor<{count}xi32> {{sdy.sharding = #sdy.sharding{split}}}) {{
    %i = stablehlo.iota dim = 0 : tensor<{count}xi32>
    %0 = sdy.manual_computation(%i) in_shardings=[{split}] out_shardings=[{split}] manual_axes={{"gang"}}
        (%p: tensor<1xi32>) {{
      %r = {call}(%p) {_INDEX}
      sdy.return %r : tensor<1xi32>
    }} : (tensor<{count}xi32>) -> tensor<{count}xi32>
    return %0 : tensor<{count}xi32>
  }}
}}"""
