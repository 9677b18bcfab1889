"""Tests which launches of a run may not be done, when it last moved, and the order in which runs end."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.plans_by_hand import run

from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.run.dispatch import Dispatch
from pathways.runtime.host.run.enqueuer import BodyEnds, Enqueuer
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.runs_in_flight import MAX_TIMES, Flight, Flights, Launch, Line


class Token:
    """The end of a launch, which comes when the test says so."""

    def __init__(self, fails: bool = False) -> None:
        self.there = threading.Event()
        self.fails = fails

    def block_until_ready(self) -> None:
        assert self.there.wait(20)
        if self.fails:
            raise RuntimeError("it failed")


class Ends:
    """Notes the runs that end, and wakes the test."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._changed = threading.Condition()

    def of(self, number: int) -> Any:
        def done(seconds: float) -> None:
            with self._changed:
                self.seconds[number] = seconds
                self._changed.notify_all()

        return done

    def wait_for(self, *numbers: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(numbers) <= set(self.seconds), 20)


def launch(name: str, *devices: str) -> Launch:
    return Launch(run(0, name=name), "pod", devices, ())


def flight(number: int = 0, ends: Ends | None = None, tokens: Any = (), queues: Any = (), **more: Any) -> Flight:
    plan: Any = SimpleNamespace(name="train")
    return Flight(number, plan, queues, list(tokens), "main", (ends or Ends()).of(number), **more)


def named(parts: Any) -> list[tuple[int, str]]:
    return [(number, one.run.name) for number, one in parts]


def test_launches_of_the_program_and_its_bodies_are_in_order_of_their_numbers() -> None:
    found = flight()
    found.begin(None, 100, [launch("f"), launch("g")])
    found.begin("body", 110, [launch("h")])
    found.begin("body", 105, [launch("h"), launch("i")])
    assert named(found.parts()) == [(100, "f"), (101, "g"), (105, "h"), (106, "i"), (110, "h")]
    assert named(found.parts_of(None)) == [(100, "f"), (101, "g")]
    assert named(found.parts_of("body")) == [(110, "h"), (105, "h"), (106, "i")] and found.parts_of("other") == []


def test_only_the_last_executions_of_a_body_are_remembered() -> None:
    found = flight()
    for n in range(MAX_TIMES + 3):
        found.begin("body", n, [launch("h")])
    assert [number for number, _ in found.parts()] == list(range(3, MAX_TIMES + 3))


def test_a_run_moves_when_it_enqueues_and_when_any_of_its_devices_is_done() -> None:
    queues = [DeviceQueue(), DeviceQueue()]
    found = flight(queues=queues, moved=50.0)
    assert found.mark == 50.0
    queues[1].moved = 70.0
    assert found.mark == 70.0
    found.moved = 90.0
    assert found.mark == 90.0 and flight(moved=0.5).mark == 0.5


@pytest.mark.parametrize("eager", [True, False])
def test_runs_of_a_line_end_one_after_another_though_one_fails(eager: bool) -> None:
    flights, ends = Flights(), Ends()
    line, queue = flights.line("pod"), DeviceQueue()
    assert flights.line("pod") is line and flights.line("other") is not line
    tokens = [Token(), Token(fails=True), Token()]
    for number, token in enumerate(tokens):
        line.put(flight(number, ends, [token], [queue]), eager=eager)
    assert flights.count == 3 and [f.number for f in flights.all()] == [0, 1, 2] and not flights.drain(timeout=0)
    tokens[1].there.set()
    tokens[2].there.set()
    flights.hurry()
    assert ends.seconds == {} and queue.moved == 0.0
    tokens[0].there.set()
    ends.wait_for(0, 1, 2)
    assert flights.drain() and flights.count == 0 and queue.moved > 0 and min(ends.seconds.values()) >= 0
    flights.stop()


def test_a_run_that_waited_behind_another_kept_its_devices_busy_only_after_it() -> None:
    flights, ends = Flights(), Ends()
    line = flights.line("pod")
    tokens = [Token(), Token()]
    for number, token in enumerate(tokens):
        made = flight(number, ends, [token])
        made.since -= 1000.0
        line.put(made, eager=True)
    for number, token in enumerate(tokens):
        token.there.set()
        ends.wait_for(number)
    flights.stop()
    assert ends.seconds[0] >= 1000.0 and 0 <= ends.seconds[1] < 1000.0


def test_runs_that_enqueue_and_runs_in_lines_are_listed_once_by_number() -> None:
    flights = Flights()
    first, second, third = (flight(n) for n in (1, 2, 3))
    flights.enqueuing[3] = third
    flights.enqueuing[1] = first
    flights.line("a").flights.append(second)
    flights.line("b").flights.append(first)  # it moves to its line at this moment
    assert [f.number for f in flights.all()] == [1, 2, 3]


def test_runs_on_lost_devices_are_abandoned_and_those_behind_them_end() -> None:
    flights, ends = Flights(), Ends()
    stuck, good = Token(), Token()
    lost, other = flight(0, ends, [stuck]), flight(1, ends, [good])
    lost.since = -1e6
    lost.begin(None, 1, [launch("f", "d0", "d1")])
    other.begin(None, 2, [launch("f", "d2")])
    for made in (lost, other):
        flights.line("pod").put(made, eager=True)
    flights.abandon({"d1"})
    assert lost.abandoned and not other.abandoned and set(ends.seconds) == {0}
    assert ends.seconds[0] >= 1e6
    good.there.set()
    ends.wait_for(1)
    late = flight(2, ends)
    late.life.transition("be abandoned")
    flights.line("pod").put(late, eager=False)
    assert 2 in ends.seconds and flights.count == 0
    stuck.there.set()
    flights.stop()


def test_a_thread_that_is_replaced_before_it_waits_leaves_the_line_to_the_other() -> None:
    flights, ends = Flights(), Ends()
    good = Token()
    lost, other = flight(0, ends, [Token()]), flight(1, ends, [good])
    lost.begin(None, 1, [launch("f", "d0")])
    for made in (lost, other):
        flights.line("replaced").put(made, eager=False)  # its thread looks later
    (first,) = (t for t in threading.enumerate() if t.name == "pathways-replaced")
    flights.abandon({"d0"})
    flights.hurry()
    first.join(10)
    assert not first.is_alive() and set(ends.seconds) == {0}
    good.there.set()
    ends.wait_for(1)
    flights.stop()


def test_a_run_ends_after_the_thread_of_its_idle_line_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathways.runtime.host.run.runs_in_flight.IDLE_POLL_INTERVAL_S", 0.001)
    flights, ends = Flights(), Ends()
    for number in range(2):
        token = Token()
        flights.line("left by its thread").put(flight(number, ends, [token]), eager=True)
        (thread,) = (t for t in threading.enumerate() if t.name == "pathways-left by its thread")
        token.there.set()
        ends.wait_for(number)
        thread.join(10)
        assert not thread.is_alive()
    flights.stop()


def test_the_first_run_of_a_line_kept_its_devices_busy_from_its_begin_on(monkeypatch: pytest.MonkeyPatch) -> None:
    young_machine = SimpleNamespace(monotonic=lambda: -5.0)
    monkeypatch.setattr("pathways.runtime.host.run.runs_in_flight.time", young_machine)
    flights, ends = Flights(), Ends()
    made = flight(0, ends)
    made.since = -9.0
    flights.line("pod").put(made, eager=True)
    ends.wait_for(0)
    flights.stop()
    assert ends.seconds == {0: 4.0}


def test_a_line_without_a_thread_waits_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathways.runtime.host.run.runs_in_flight.started", lambda _: False)
    flights, ends = Flights(), Ends()
    token = Token()
    token.there.set()
    Line("pod", flights).put(flight(4, ends, [token]), eager=True)
    assert set(ends.seconds) == {4}


def frame(early: str, last: str, base: int = 0) -> Frame:
    made = Frame(2, [(1, "constant")], base)
    made.early.extend(early)
    made.tokens.extend(last)
    return made


def test_a_frame_begins_with_its_constants_alone() -> None:
    made = frame("", "", 7)
    assert (made.values, made.base, made.transfers) == ([None, "constant"], 7, 0)
    assert Frame(1, ()).base == -1


def test_the_last_whole_run_of_a_body_stands_for_its_earlier_runs() -> None:
    ends = BodyEnds()
    ends.note("a", ["1", "2"], whole=True)
    ends.note("b", ["3"], whole=False)
    assert ends.tokens() == ["1", "2", "3"]
    ends.note("b", ["4", "5"], whole=False)  # it ended early: what is before may not be done
    assert ends.tokens() == ["1", "2", "3", "4", "5"]
    ends.note("a", ["6"], whole=True)
    assert ends.tokens() == ["6", "3", "4", "5"]


def test_a_host_knows_the_tokens_of_what_is_under_way_and_of_ended_bodies() -> None:
    machine: Any = SimpleNamespace(take_launches=lambda count: 40 + count)
    enqueuer = Enqueuer(machine, flight(), (), frames={})
    assert enqueuer.begin("body", [launch("f"), launch("g")]) == 42
    assert named(enqueuer.flight.parts_of("body")) == [(42, "f"), (43, "g")]
    program, body, order = frame("1", "2"), frame("3", "4"), list[Any]()
    steps: Any = [SimpleNamespace(enqueue=lambda of, n=n: order.append((n, of))) for n in range(2)]
    enqueuer.flight.moved = 0.0
    for each in (program, body):
        enqueuer.enqueue(Part(steps), each, last=False)
    assert order == [(0, program), (1, program), (0, body), (1, body)] and enqueuer.flight.moved > 0
    assert enqueuer.tokens() == ["2", "1", "4", "3"]
    enqueuer.ends_with("body", body, whole=True)
    assert enqueuer.tokens() == ["2", "1", "3", "4"]
    enqueuer.ends_with("body", frame("", "5"), whole=True)
    assert enqueuer.tokens() == ["2", "1", "5"]


def test_a_body_of_one_launch_is_noted_like_others() -> None:
    machine: Any = SimpleNamespace(take_launches=lambda count: 40 + count)
    enqueuer = Enqueuer(machine, flight())
    enqueuer.flight.moved = 0.0
    answers: list[Any] = [(["1"], ["made"]), ((), ["poison"]), KeyboardInterrupt(), (["2"], ["again"])]
    taken: list[tuple[list[Any], int]] = []

    def start(operands: Sequence[Any], launch_id: int) -> Any:
        taken.append(([*operands], launch_id))
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    single: Any = start
    operands = ["x"]
    assert enqueuer.launch("body", [launch("f")], single, operands) == ["made"]
    assert not operands and taken == [(["x"], 41)] and enqueuer.tokens() == ["1"] and enqueuer.flight.moved > 0
    assert enqueuer.launch("body", [launch("f")], single, ["y"]) == ["poison"]
    assert enqueuer.tokens() == ["1"], "nothing was launched"
    with pytest.raises(KeyboardInterrupt):
        enqueuer.launch("body", [launch("f")], single, ["y"])
    assert enqueuer.tokens() == ["1"] and enqueuer.launch("body", [launch("f")], single, ["z"]) == ["again"]
    assert enqueuer.tokens() == ["2"] and len(named(enqueuer.flight.parts_of("body"))) == 4


class RunQueue:
    """Notes what a run does with its turn."""

    def __init__(self, contended: bool) -> None:
        self.contended = contended
        self.done: list[str] = []

    def yield_slot(self, ticket: Any) -> None:
        self.done.append(f"aside {ticket}")

    def pause(self, ticket: Any, patience: Any) -> None:
        self.done.append(f"pause {ticket}")
        patience(ticket)


class Known:
    def __init__(self, known: bool) -> None:
        self.known, self.waited = known, 0

    def is_known(self) -> bool:
        return self.known

    def wait(self) -> None:
        self.waited += 1


def dispatch(contended: bool, promise: Any = None, closed: bool = False) -> tuple[Dispatch, RunQueue, list[Any]]:
    turns, asked = RunQueue(contended), list[Any]()
    control: Any = SimpleNamespace(
        run_queue=turns, observers=(), machine=SimpleNamespace(take_launches=lambda count: 10 * count),
        patience=lambda ticket, client: asked.append((ticket, client)),
    )  # fmt: skip
    client: Any = SimpleNamespace(closed=closed)
    made = Dispatch(control.machine, flight(), control=control, ticket="t", client=client, promise=promise)
    return made, turns, asked


@pytest.mark.parametrize(("contended", "last", "pauses"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_run_gives_way_between_parts_if_others_wait(contended: bool, last: bool, pauses: int) -> None:
    made, turns, asked = dispatch(contended)
    done: list[Frame] = []
    steps: Any = [SimpleNamespace(enqueue=done.append)] * 2
    made.flight.moved = 0.0
    values = frame("", "")
    made.enqueue(Part(steps), values, last=last)
    assert done == [values] * 2 and turns.done == ["pause t"] * pauses and made.flight.moved > 0
    assert made.times_scheduled == 1 + pauses and asked == [("t", made.client)] * pauses


@pytest.mark.parametrize(
    ("known", "contended", "done"),
    [((False, True), False, []), ((True, True), True, ["pause t"]), ((False,), False, ["aside t", "pause t"])],
)
def test_a_run_steps_aside_only_while_it_waits(known: tuple[bool, ...], contended: bool, done: list[str]) -> None:
    made, turns, _ = dispatch(contended)
    pendings = [Known(one) for one in known]
    made.flight.moved = 0.0
    made.wait(pendings)
    assert turns.done == done and sum(p.waited for p in pendings) == (0 if any(known) else 1)
    assert (made.flight.moved > 0) is (not any(known))


def test_a_run_that_waits_ends_with_its_client_or_when_it_is_cancelled() -> None:
    checked: list[bool] = []
    promise = SimpleNamespace(cancelled=False, check=lambda: checked.append(True))
    for closed, cancelled, asks in ((False, False, 0), (True, False, 1), (False, True, 1)):
        promise.cancelled = cancelled
        made, _, asked = dispatch(False, promise, closed)
        checked.clear()
        made.wait([Known(True)])
        assert len(asked) == len(checked) == asks
    made, _, asked = dispatch(False, None, True)
    made.wait([Known(True)])
    assert asked == [("t", made.client)]


def test_launches_of_a_run_begin_at_the_number_that_the_machine_gives() -> None:
    made, _, _ = dispatch(False)
    assert made.begin(None, [launch("f"), launch("g")]) == 20
    assert named(made.flight.parts()) == [(20, "f"), (21, "g")]
    made.ends_with("body", frame("1", "2"), whole=True)
    assert made.ends.tokens() == ["1", "2"]
