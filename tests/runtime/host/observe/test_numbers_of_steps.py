"""Tests what is found in results of steps, and which steps begin after that on a host."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.plans_by_hand import copy, plan_of, run

from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Instruction
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.errors import ComputationFailed, NotANumber
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.observe.fault_steps import FaultSteps
from pathways.runtime.host.observe.faults import Fault
from pathways.runtime.host.observe.numbers import INFS, NANS, NumberError, Numbers, NumbersOnHost
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer, enqueue_observed
from pathways.runtime.host.run.poison import Poison

LINE = Where("model.py", 7, "")
F = run(4, (0,), (1, 2), name="loss", where=LINE)
POISON = Poison(ComputationFailed(computation="f", island="pod", cause="before"))
FLIGHT: Any = SimpleNamespace(number=1, plan=plan_of({"pod": [F]}), client="main")
Make = Callable[[Sequence[float]], Any]


@pytest.fixture(scope="module")
def array() -> Make:
    (device,) = pjrt.make_devices(1)
    layout = Sharding(MeshSpec((("x", 1),), (0,)), ((),))
    real = pjrt.named_sharding(layout.mesh, layout.dims, [device])

    def make(values: Sequence[float]) -> Any:
        host = np.array(values)
        host = host.astype(np.float32 if host.dtype.kind == "f" else np.int32)
        return pjrt.putter(ArrayType(host.shape, str(host.dtype)), layout, real, [device])(host)

    return make


def island(lost: Sequence[int] = (), devices: Sequence[Any] = ("a", "b")) -> PhysicalIsland:
    return PhysicalIsland("pod", tuple(devices), (), "pod", dict.fromkeys(lost, "burned"))


def step(instruction: Instruction = F, on: PhysicalIsland | None = None, **more: Any) -> Step:
    def enqueue(frame: Frame) -> None:
        frame.values[0] = "enqueued"

    return Step(enqueue, instruction, on or island(), FLIGHT.plan, (1, 2), **more)


def frame(*values: Any) -> Frame:
    return Frame(len(values), list(enumerate(values)))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("wanted", "first", "second", "found"),
    [(NANS, [1.0], [2.0, NAN, NAN], "NaN in 2 of 3 values of result 1"), (NANS, [NAN], [NAN, 0.0], "NaN in 1 of 1 "
      "values of result 0"), (INFS, [-INF, 1.0], [0.0], "infinity in 1 of 2 values of result 0"),
     (NANS | INFS, [INF, NAN], [0.0], "NaN in 1 of 2 values of result 0"), (NANS, [INF], [0.0], ""),
     (INFS, [NAN], [0.0], ""), (NANS | INFS, [1, 2], [3.0], "")],
)  # fmt: skip
def test_the_first_result_with_what_is_looked_for_is_named(
    array: Make, wanted: int, first: Sequence[float], second: Sequence[float], found: str
) -> None:
    check = Numbers(wanted).check(step(), frame(None, array(first), array(second)))
    assert (check.have_ if check is not None else "") == found
    assert check is None or (check.computation, check.island, check.where) == ("loss", "pod", LINE)
    assert check is None or check.setting == ("jax.debug_nans" if wanted & NANS else "jax.debug_infs")


def test_poison_is_no_result_to_look_at_and_shards_are_looked_at_one_by_one(array: Make) -> None:
    shards = Shards([array([1.0]), array([2.0, NAN])])
    found = Numbers(NANS).check(step(), frame(None, POISON, shards))
    assert found is not None and found.have_ == "NaN in 1 of 2 values of result 1"
    assert Numbers(NANS).check(step(copy(4, 0, 1)), frame(None, array([NAN]), None)) is None


def test_a_merged_computation_names_its_parts(array: Make) -> None:
    merged = run(4, (0,), (1, 2), name="loss", parts=("0F1 dense model.py:7 f", "- add"))
    found = Numbers(NANS).check(step(merged), frame(None, array([NAN]), None))
    assert found is not None and found.computation == "loss (merged of dense, add)"


def test_a_found_number_ends_a_run_of_this_process(array: Make) -> None:
    with pytest.raises(NumberError, match="NaN in 1 of 1"):
        Numbers(NANS).after_step(FLIGHT, step(), frame(None, array([NAN]), array([0.0])), 0, 0)
    Numbers(NANS).after_step(FLIGHT, step(), frame(None, array([0.0]), array([0.0])), 0, 0)


@pytest.mark.parametrize("whole", [True, False])
def test_on_a_host_what_is_found_first_stops_later_computations_of_a_whole_island(array: Make, whole: bool) -> None:
    check = NumbersOnHost(NANS)
    check.is_whole_here = whole
    values = frame(None, array([0.0]), array([NAN]))
    assert check.before_step(FLIGHT, step(), values) is None
    check.after_step(FLIGHT, step(), values, 0, 0)
    found = check.found
    assert isinstance(found, NotANumber) and check.step == 4
    assert [isinstance(v, Poison) for v in values.values[1:]] == [whole, whole]
    assert check.before_step(FLIGHT, step(), values) == (Poison(found) if whole else None)
    assert check.before_step(FLIGHT, step(copy(4, 0, 1)), values) is None
    later = run(9, (0,), (1, 2), name="later")
    check.after_step(FLIGHT, step(later), frame(None, array([NAN]), array([NAN])), 0, 0)
    assert check.found is found and check.step == 4


class Noting(Observer):
    """An observer that notes what it is told, and gives poison before a step where it has some."""

    def __init__(self, log: list[Any], poison: Poison | None = None) -> None:
        self.log, self.poison = log, poison

    def before_step(self, flight: Any, step: Step, frame: Frame) -> Poison | None:
        self.log.append("before")
        return self.poison

    def after_step(self, flight: Any, step: Step, frame: Frame, begin: int, end: int) -> None:
        self.log.append((frame.values[:2], begin <= end))


@pytest.mark.parametrize("poison", [None, POISON])
def test_a_step_is_enqueued_unless_an_observer_gives_poison(poison: Poison | None) -> None:
    log: list[Any] = []
    observers = [Noting(log), Noting(log, poison)]
    values = frame("a", "b", "c", "d")
    enqueue_observed(observers, [step(emptied=(3,))], values, FLIGHT)
    expected = ["enqueued", "b", "c", "d"] if poison is None else ["a", POISON, POISON, None]
    assert values.values == expected
    assert log == ["before", "before", (expected[:2], True), (expected[:2], True)]


@pytest.mark.parametrize(("devices", "fails"), [(("a",), False), (("b",), True), (("a", "b"), True)])
def test_a_step_on_a_lost_device_fails(devices: tuple[Any, ...], fails: bool) -> None:
    values = frame("a", "b", "c")
    enqueue_observed([Observer()], [step(on=island(lost=[1]), devices=devices)], values, FLIGHT)
    assert isinstance(values.values[1], Poison) is fails and (values.values[0] == "enqueued") is not fails


def test_a_fault_that_loses_a_device_poisons_the_values_that_lie_there(array: Make) -> None:
    (other,) = pjrt.make_devices(1)
    held = array([1.0])
    (here,) = held.sharding.device_set
    lost: list[Any] = []
    executables: Any = None
    on = island(devices=(other, here))
    faults = FaultSteps(
        Fault("lose", device=3, message="on purpose"), executables, lambda n: n, lambda *said: lost.append(said)
    )
    values = frame(held, Shards([held]), "token", None)
    found = faults.before_step(FLIGHT, step(on=on, devices=(other, here)), values)
    assert lost == [(on, 1, "on purpose")] and found is not None
    assert values.values == [found, found, "token", None] and found.cause.code == "PWC0512"
    assert faults.before_step(FLIGHT, step(on=on, devices=(other, here)), values) is None  # it happens once


@pytest.mark.parametrize("more", [{"computation": "other"}, {"client": "other"}, {"times": 0}, {"after": 1}])
def test_a_step_that_a_fault_does_not_meet_is_left_alone(more: dict[str, Any]) -> None:
    executables: Any = None
    faults = FaultSteps(Fault("lose", **more), executables, lambda n: n, lambda *said: pytest.fail("it loses a device"))
    assert faults.before_step(FLIGHT, step(), frame(None, None, None)) is None
    assert faults.before_step(FLIGHT, step(copy(4, 0, 1)), frame(None, None, None)) is None
