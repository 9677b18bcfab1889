"""Tests what a launch gives its devices and its run, with executables that only note what they are given."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.plans_by_hand import computation, run

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.topology import Island
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import CallbackRecord
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue, Gang, QueueLost
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.load import launches
from pathways.runtime.host.load.callback_launches import MAX_QUICK_S, OneAtATime
from pathways.runtime.host.load.launches import as_gang, elsewhere, starts_apart
from pathways.runtime.host.run.fallible import Awaited, AwaitedOutcome, WatchedLaunch, failed
from pathways.runtime.host.run.poison import Poison

POISON = Poison(ComputationFailed(computation="f", island=Island("pod", 1).name, cause="before"))


class Executable:
    """An executable of two results that notes its launches."""

    def __init__(self) -> None:
        self.given: list[tuple[list[Any], dict[str, Any]]] = []

    def execute_sharded(self, operands: list[Any], **options: Any) -> Any:
        self.given.append((list(operands), options))
        return SimpleNamespace(consume_token=lambda: "token", consume_with_handlers=lambda handlers: list(handlers))


@pytest.mark.parametrize(
    ("due", "last", "tokens", "kept"),
    [(False, False, [], 0), (True, False, ["token"], 1), (False, True, ["token"], 0), (True, True, ["token"], 1)],
)
@pytest.mark.parametrize("small", [None, 1])
def test_a_gang_gives_a_token_where_the_limit_or_the_run_wants_one(
    due: bool, last: bool, tokens: list[str], kept: int, small: int | None
) -> None:
    executable, queue = Executable(), DeviceQueue()
    handlers: Any = ["first", "second"]
    launch = as_gang(executable, handlers, Gang([queue]), small).launch  # pyright: ignore[reportArgumentType]
    values: list[Any] = ["a", None, "b", None]
    assert list(launch(values, (2, 0), (1, 3), 77, due, last)) == tokens
    assert values == ["a", "first", "b", "second"]
    ((operands, options),) = executable.given
    assert operands == ["b", "a"] and options.pop("launch_id") == 77
    assert options == ({"with_tokens": True} if tokens else {})
    assert [token for token, _ in queue.tokens] == [("token", None if small is None else "second")] * kept


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_an_argument_must_have_one_shard_for_each_device(monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    executable, side = Executable(), SimpleNamespace(sharding=None, real=None)
    made: Any = SimpleNamespace(outputs=[ArrayType((4,), "int8")] * 2, local=b"code")
    executables: Any = SimpleNamespace(load=lambda *_: executable)
    for name in ("shard_type", "on_device", "assembler"):
        monkeypatch.setattr(pjrt, name, lambda first, *_: first)
    monkeypatch.setattr(pjrt, "result_handlers", lambda *_: ["first", "second"])
    monkeypatch.setattr(launches, "code_of", lambda *_: [(b"code", ("d",))] * 2)
    sides: Any = [side, side]
    gang = Gang([DeviceQueue(), DeviceQueue()])
    launch = launches.launch_apart(made, ("d", "d"), sides, [True, True], gang, executables).launch
    values: list[Any] = [Shards("ab"), None, None, Shards("x" * shards)]
    assert list(launch(values, (0,), (1, 2), 7, False, False)) == []
    assert values[1:3] == [["first", "first"], ["second", "second"]] and len(executable.given) == 2
    with pytest.raises(ValueError, match=f"{shards} shards for 2 devices"):
        launch(values, (0, 3), (1, 2), 8, False, False)
    assert len(executable.given) == 2, "nothing is launched"


def test_a_launch_without_devices_here_fills_its_results_with_no_shards() -> None:
    values: list[Any] = ["a", None, None]
    assert list(elsewhere(values, (0,), (1, 2), 7, True, True)) == []
    assert values == ["a", [], []] and all(isinstance(value, Shards) for value in values[1:])
    with pytest.raises(ValueError):
        elsewhere(["a", POISON, None], (0, 1), (2,), 7, False, False)


@pytest.mark.parametrize(
    ("platform", "devices", "local", "apart"),
    [("cpu", 16, b"code", True), ("cpu", 17, b"code", False), ("cpu", 2, b"", False), ("gpu", 1, b"code", False)],
)
def test_devices_are_started_one_by_one_up_to_the_limit_of_the_platform(
    platform: str, devices: int, local: bytes, apart: bool
) -> None:
    assert starts_apart(computation(local=local, axes=(("x", devices),)), platform) is apart


class Token:
    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.waits = error, 0

    def block_until_ready(self) -> None:
        self.waits += 1
        if self.error is not None:
            raise self.error

    def is_ready(self) -> bool:
        return self.waits > 0


def test_a_computation_with_callbacks_is_launched_when_the_launch_before_is_done() -> None:
    tokens, given = [Token() for _ in range(3)], list[Any]()
    left = iter(tokens)

    def launch(*arguments: Any) -> list[Token]:
        given.append(arguments)
        return [next(left)]

    record = CallbackRecord()
    one = OneAtATime(launch, record, 1, [DeviceQueue()])
    values: list[Any] = [None, None]
    assert not one.is_quick
    assert one(values, (0,), (0,), 7, True, False) == tokens[:1] and tokens[0].waits == 0
    first = values[1]
    assert isinstance(first, WatchedLaunch) and first.errors is record.errors and first is one.previous
    assert not one.is_quick
    first.wait()
    assert one.is_quick
    record.longest_s = MAX_QUICK_S
    assert not one.is_quick
    assert one(values, (0,), (0,), 8, False, True) == tokens[1:2]
    assert tokens[0].waits == 1 and first.is_over and values[1] is not first and values[1].errors is not first.errors
    assert given == [(values, (0,), (0,), 7, True, False), (values, (0,), (0,), 8, False, True)]
    assert tokens[1].waits == 0
    one(values, (), (), 9, False, False)
    assert tokens[1].waits == 1 and tokens[2].waits == 0


def launched_with(
    raised: Sequence[BaseException], tokens: Sequence[Token] = (), queues: Sequence[DeviceQueue] = ()
) -> WatchedLaunch:
    """Returns a launch that has begun, and whose callbacks have raised these exceptions."""
    record = CallbackRecord()
    errors = record.begin()
    errors += raised
    return WatchedLaunch(errors, tokens, queues, record)


def test_a_launch_on_a_lost_device_will_never_be_done() -> None:
    queue = DeviceQueue()
    queue.lose()
    launched = launched_with([], [Token()], [queue])
    with pytest.raises(QueueLost):
        launched.wait()
    assert not launched.is_over
    launched.ended()
    launched.wait()


def awaited(outputs: int, mark: int = 2) -> Awaited:
    return Awaited(run(0, name="f"), "pod", list(range(outputs)), mark, Poison)


def test_an_outcome_is_known_when_all_results_are_ready_or_poison() -> None:
    one, two = Token(), Token()
    launched = launched_with([])
    values: list[Any] = [one, two, launched]
    outcome = AwaitedOutcome(awaited(2), values)
    one.waits = 1
    assert outcome.is_known() is False and not awaited(2).is_over(values) and not launched.is_over
    two.waits = 1
    assert outcome.is_known() is True and awaited(2).is_over(values) and launched.is_over
    values[:2] = [POISON, POISON]
    assert outcome.is_known() is True
    assert awaited(0).is_known(values) is None and not awaited(0).is_over(values)
    assert awaited(2, mark=-1).is_over(values)


def test_an_exception_of_a_callback_poisons_the_results_of_the_whole_gang() -> None:
    results = [Token(), Token()]
    values: list[Any] = [*results, launched_with([ValueError("on purpose"), ValueError("later")])]
    AwaitedOutcome(awaited(2), values).wait()
    bad = values[0]
    assert isinstance(bad, Poison) and values[1] is bad and all(token.waits == 1 for token in results)
    said = str(bad.error())
    assert "f failed on pod" in said and "ValueError: on purpose" in said and "later" not in said
    AwaitedOutcome(awaited(2), values).wait()
    assert values[0] is bad


@pytest.mark.parametrize("mark", [2, -1])
def test_a_failed_result_poisons_all_and_good_results_stay(mark: int) -> None:
    launched = launched_with([]) if mark >= 0 else None
    values: list[Any] = [Token(), Token(RuntimeError("XLA says no")), launched]
    AwaitedOutcome(awaited(2, mark), values).wait()
    assert isinstance(values[0], Poison) and values[0] is values[1] and "XLA says no" in str(values[0].error())
    good = Token()
    values = [good, good, launched]
    AwaitedOutcome(awaited(2, mark), values).wait()
    assert values[:2] == [good, good] and good.waits == 2


def test_a_failure_without_results_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    values: list[Any] = [None, None, launched_with([ValueError("on purpose")])]
    for _ in range(2):
        AwaitedOutcome(awaited(0), values).wait()
    said = capsys.readouterr()
    assert said.err.count("ValueError: on purpose") == 1 and said.out == "" and values[2] is None


def test_the_work_of_an_awaited_computation_waits_for_its_outcome_alone() -> None:
    values: list[Any] = [Token(), Token(), launched_with([ValueError("on purpose")])]
    frame: Any = SimpleNamespace(values=values)
    enqueuer: Any = None
    work = awaited(2).start(frame, enqueuer)
    (outcome,) = next(work)
    assert isinstance(outcome, AwaitedOutcome) and not isinstance(values[0], Poison)
    assert next(work, None) is None and isinstance(values[0], Poison)


def test_a_failure_says_what_xla_or_the_callback_says() -> None:
    made = run(0, name="f")
    assert "XLA says no" in str(Poison(failed(made, "pod", RuntimeError("XLA says no"))).error())
    said = str(Poison(failed(made, "pod", RuntimeError("XLA says no"), KeyError("key"))).error())
    assert "KeyError: 'key'" in said and "XLA" not in said
