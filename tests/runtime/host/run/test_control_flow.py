"""Tests which bodies a branch runs, on which values, and what it copies, with bodies that only note what they do."""

import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.plans_by_hand import cond

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run.control_flow import MAX_TURNS_AT_ONCE, Choice, LoadedBody
from pathways.runtime.host.run.decisions import RunDecisions
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import PreparedWave
from pathways.runtime.wire import messages as m

POISON = Poison(ComputationFailed(computation="f", island="pod", cause="before"))
LAYOUT = Sharding(MeshSpec((("x", 1),), (0,)), ())


@pytest.fixture(scope="module")
def device() -> Any:
    (found,) = pjrt.make_devices(1)
    return found


@pytest.fixture
def number(device: Any) -> Callable[[int], Any]:
    """Makes arrays that hold one number each."""
    real = pjrt.named_sharding(LAYOUT.mesh, LAYOUT.dims, [device])
    return lambda value: pjrt.putter(ArrayType((), "int32"), LAYOUT, real, [device])(np.array(value, np.int32))


class Run(Enqueuer):
    """A run while it is enqueued: numbers its launches, and notes which bodies end."""

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall]
        self.ended: list[tuple[Any, int, bool]] = []
        self.begun = 100

    def begin(self, owner: Any, launches: Any) -> int:
        self.begun += 1
        return self.begun

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        for step in part.steps:
            step.enqueue(frame)

    def ends_with(self, owner: Any, frame: Frame, *, whole: bool) -> None:
        self.ended.append((owner, frame.base, whole))


def body(
    work: Callable[[list[Any]], None], inputs: Sequence[int], results: Sequence[int], constants: Any = (),
    overwritten: Sequence[int] = (),
) -> LoadedBody:  # fmt: skip
    """Makes a body whose only step changes the values of its frame."""
    step: Any = SimpleNamespace(enqueue=lambda frame: work(frame.values), start=None)
    waves = [PreparedWave(0, [Part([step])])]
    return LoadedBody(waves, (), 6, inputs, results, constants, frozenset(overwritten))


def passing(count: int, *slots: int) -> LoadedBody:
    """Makes a body of so many operands that returns some of them."""
    return body(lambda _: None, range(count), slots)


def choice(branch: Branch, bodies: Sequence[LoadedBody], **more: Any) -> Choice:
    given: dict[str, Any] = {"is_shared": False, "donated": frozenset[int](), "cause": Poison} | more
    return Choice(
        branch, 3, given.pop("is_shared"), "pod", branch.inputs, given.pop("donated"), branch.outputs, bodies, **given
    )


def run_branch(made: Choice, values: list[Any], decisions: Any = None, transfers: int = 0) -> Run:
    frame = Frame(len(values), list(enumerate(values)), transfers=transfers, decisions=decisions)
    run = Run()
    for pendings in made.start(frame, run):
        for pending in pendings:
            pending.wait()
    values[:] = frame.values
    return run


@pytest.mark.parametrize(("given", "taken"), [(0, 0), (1, 1), (2, 2), (-5, 0), (99, 2)])
def test_a_number_chooses_its_body_or_the_nearest_one(number: Any, given: int, taken: int) -> None:
    ran: list[tuple[int, list[Any]]] = []

    def noting(n: int) -> LoadedBody:
        return body(lambda values: ran.append((n, values[:3])) or values.__setitem__(5, n), (0, 1), (5,))

    values = [number(given), "a", "b", None]
    bodies = [noting(n) for n in range(3)]
    run = run_branch(choice(cond(1, (0, 1, 2), (3,)), bodies), values)
    assert ran == [(taken, ["a", "b", None])] and values[3] == taken and values[1:3] == ["a", "b"]
    assert run.ended == [(bodies[taken], 101, True)]


def test_a_body_leaves_out_what_other_hosts_have_and_begins_with_its_constants() -> None:
    seen: list[Any] = []
    made = body(lambda values: seen.extend(values), (1, -1, 0), (0, -1, 3), [(3, "constant")])
    operands, run = ["a", "b", "c"], Run()
    work = made.run(operands, run)
    with pytest.raises(StopIteration) as over:
        next(work)
    assert over.value.value == ["c", None, "constant"] and seen[:4] == ["c", "a", None, "constant"] and operands == []


def test_a_body_that_breaks_off_is_no_whole_run() -> None:
    def breaks(_: list[Any]) -> None:
        raise KeyboardInterrupt

    made, run = body(breaks, (), ()), Run()
    with pytest.raises(KeyboardInterrupt):
        next(made.run([], run))
    assert run.ended == [(made, 101, False)]


@pytest.mark.parametrize("donated", [False, True])
def test_a_result_that_is_an_operand_is_copied_unless_the_operand_was_donated(number: Any, donated: bool) -> None:
    values = [number(0), number(7), None]
    given = values[1]
    made = choice(cond(1, (0, 1), (2,)), [passing(1, 0)], donated=frozenset({1} if donated else ()))
    run_branch(made, values)
    assert (values[2] is given) is donated and values[1] is (None if donated else given)
    assert int(np.asarray(values[2])) == 7


def test_of_two_results_with_one_buffer_one_is_a_copy(number: Any) -> None:
    values = [number(0), number(7), None, None]
    given = values[1]
    run_branch(choice(cond(1, (0, 1), (2, 3)), [passing(1, 0, 0)], donated=frozenset({1})), values)
    assert [value is given for value in values[2:]] == [False, True] and int(np.asarray(values[2])) == 7


def test_a_result_that_is_a_constant_is_copied(number: Any) -> None:
    constant = number(5)
    values = [number(0), None]
    run_branch(choice(cond(1, (0,), (1,)), [body(lambda _: None, (), (3,), [(3, constant)])]), values)
    assert values[1] is not constant and int(np.asarray(values[1])) == 5


def test_poison_in_place_of_the_number_is_each_result() -> None:
    values = [POISON, "a", None, None]
    run = run_branch(choice(cond(1, (0, 1), (2, 3)), [passing(1, 0, 0)]), values)
    assert values[2:] == [POISON, POISON] and run.ended == []


def test_a_number_that_cannot_be_read_fails_the_branch() -> None:
    class Bad:
        is_fully_addressable = True

        def is_ready(self) -> bool:
            return True

        def block_until_ready(self) -> None:
            raise RuntimeError("XLA says no")

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a read before the wait hangs if an earlier execution is stuck")

    values: list[Any] = [Bad(), None]
    run_branch(choice(cond(1, (0,), (1,), "choose"), [passing(0)]), values)
    said = str(values[1].error())
    assert "the condition of choose failed on pod" in said and "XLA says no" in said


def loop(outputs: Sequence[int], inputs: Sequence[int]) -> Branch:
    every = tuple(range(len(inputs))), tuple(range(len(outputs)))
    return Branch(1, "while", (), tuple(inputs), every[0], tuple(outputs), every[1], (0,), "loop", None)


def counting(number: Any, times: int, overwritten: Sequence[int] = ()) -> tuple[list[LoadedBody], list[list[Any]]]:
    """Makes the bodies of a loop that adds its fixed operand to the carried one, so many times."""
    left, given = [times], list[list[Any]]()

    def test(values: list[Any]) -> None:
        values[5] = number(left[0] > 0)

    def step(values: list[Any]) -> None:
        left[0] -= 1
        given.append(values[:2])
        values[1] = number(int(np.asarray(values[0])) + int(np.asarray(values[1])))

    return [body(test, (0, 1), (5,)), body(step, (0, 1), (1,), (), overwritten)], given


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_loop_carries_its_values_while_the_first_body_says_so(number: Any, times: int) -> None:
    bodies, given = counting(number, times)
    values = [number(10), number(1), None]
    fixed, first = values[:2]
    run = run_branch(choice(loop((2,), (0, 1)), bodies), values)
    assert int(np.asarray(values[2])) == 1 + 10 * times and values[:2] == [fixed, first] and values[2] is not first
    assert all(operands[0] is fixed for operands in given)
    assert [owner for owner, _, _ in run.ended] == [*bodies * times, bodies[0]]


@pytest.mark.parametrize(("may_go_on", "yields"), [(True, 41 // MAX_TURNS_AT_ONCE), (False, 41)])
def test_a_loop_whose_turns_are_decided_yields_rarely_unless_other_work_waits(
    number: Any, may_go_on: bool, yields: int
) -> None:
    class Asked(Run):
        @property
        def may_go_on(self) -> bool:
            return may_go_on

    bodies, _ = counting(number, 40)
    frame = Frame(3, list(enumerate([number(10), number(1), None])))
    assert sum(1 for _ in choice(loop((2,), (0, 1)), bodies).start(frame, Asked())) == yields
    assert int(np.asarray(frame.values[2])) == 401


@pytest.mark.parametrize(("overwritten", "is_copied"), [((1,), True), ((), False)])
def test_a_loop_gives_its_body_a_copy_of_an_operand_that_the_body_overwrites(
    number: Any, overwritten: tuple[int, ...], is_copied: bool
) -> None:
    bodies, given = counting(number, 2, overwritten)
    values = [number(10), number(1), None]
    first = values[1]
    run_branch(choice(loop((2,), (0, 1)), bodies), values)
    assert (given[0][1] is not first) is is_copied and int(np.asarray(given[0][1])) == 1
    assert int(np.asarray(values[2])) == 21


def test_a_value_that_a_loop_carries_is_freed_once_its_body_has_used_it(number: Any) -> None:
    """Otherwise a loop would need the memory of its carried values twice."""

    class Carried:
        """A value that only the loop holds."""

    made: list[weakref.ref[Carried]] = []
    left: list[bool] = []

    def step(values: list[Any]) -> None:
        values[0] = None
        left.extend(value() is not None for value in made)
        values[0] = Carried()
        made.append(weakref.ref(values[0]))

    bodies = [body(lambda values: values.__setitem__(5, number(len(made) < 3)), (0,), (5,)), body(step, (0,), (0,))]
    values = [Carried(), None]
    run_branch(choice(loop((1,), (0,)), bodies, donated=frozenset({0})), values)
    assert values[1] is made[2]() and left == [False] * 3


def test_a_loop_whose_test_fails_is_poison() -> None:
    bodies = [body(lambda values: values.__setitem__(5, POISON), (0,), (5,)), passing(1, 0)]
    values = ["a", None]
    run_branch(choice(loop((1,), (0,)), bodies), values)
    assert values[1] is POISON


@pytest.mark.parametrize(("decides", "has_value"), [(True, True), (False, True), (True, False)])
def test_a_branch_of_several_hosts_goes_by_what_all_hear(number: Any, decides: bool, has_value: bool) -> None:
    """The host that has the value says 0; all hosts hear 1."""
    posted: list[Any] = []
    decisions = RunDecisions(7, posted.append)

    def post(said: Any) -> None:
        posted.append(said)
        (name,) = expected
        decisions.deliver(m.Decided(7, 3, 0, name, 1))

    expected: list[int] = []
    decisions.post = post
    decisions.expect = lambda name, loop: expected.append(name)
    values = [number(0), "a", "b", None]
    made = choice(
        cond(1, (0 if has_value else -1, 1, 2), (3,)), [passing(2, 0), passing(2, 1)], is_shared=True, decides=decides
    )
    run_branch(made, values, decisions, transfers=50)
    assert values[3] == "b"
    says = decides and has_value
    assert [type(said) for said in posted] == [m.Decided if says else m.Reached]
    assert not says or (posted[0].branch, posted[0].value, posted[0].name) == (3, 0, expected[0])


def test_a_cancelled_run_ends_its_loops_on_one_host(number: Any) -> None:
    decisions: Any = SimpleNamespace(cancelled=POISON)
    bodies, given = counting(number, 3)
    values = [number(10), number(1), None]
    run_branch(choice(loop((2,), (0, 1)), bodies), values, decisions)
    assert values[2] is POISON and given == []
