"""Tests what a host proves, answers, and says of the end of a run, message by message."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.plans_by_hand import cond, plan_of

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Instruction
from pathways.dialect.plan.part import branch_number
from pathways.dialect.ranks import ONE_EACH, RankTable
from pathways.runtime.errors import ComputationFailed, NotANumber
from pathways.runtime.host.load.loaded_part import PartInput, PartResult, copy_if_array
from pathways.runtime.host.observe.numbers import NANS, NumbersOnHost
from pathways.runtime.host.posting import ClientPost, post_answer
from pathways.runtime.host.proven_loads import ProvenLoads
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run_ends import end_of_run
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.load_proofs import loaded_as, new_key, proven

KEY = new_key(b"host", "ticket")
ISLANDS = ("island0", "island1")
STATED = plan_of(dict.fromkeys(ISLANDS, ()))
PLAN = first_id(3) + 2


def load(blob: bytes, plan: int = PLAN, *, sequential: bool = False) -> m.LoadPlan:
    return m.LoadPlan(1, plan, "path", sequential, {}, blob)


def expecting() -> ProvenLoads:
    loads = ProvenLoads()
    loads.expect(m.Expect(3, "ticket", "member", KEY))
    return loads


def code_of(loads: ProvenLoads, message: m.LoadPlan) -> str:
    try:
        loads.check(message, STATED, ONE_EACH)
    except PathwaysError as error:
        return str(error.code)
    return ""


def test_a_proof_is_for_the_plan_the_islands_and_the_order_that_were_loaded() -> None:
    loads = expecting()
    named = loads.check(load(b"plan"), STATED, ONE_EACH)
    assert named == loaded_as(b"plan", ISLANDS, None, sequential=False)
    assert proven(KEY, PLAN, loads.prove(PLAN, named).decode()) == named
    others = [loads.check(load(b"other"), STATED, ONE_EACH) for loads in [expecting()]]
    others.append(expecting().check(load(b"plan", sequential=True), STATED, ONE_EACH))
    others.append(expecting().check(load(b"plan"), plan_of({"island0": ()}), ONE_EACH))
    assert named not in others and len(set(others)) == 3


def test_a_proof_shows_the_branches_that_several_hosts_have_a_part_of() -> None:
    both: dict[str, Sequence[Instruction]] = {island: [cond(4, (), ())] for island in ISLANDS}
    shared = {branch_number(-1, 4): ("cond", frozenset(ISLANDS))}
    alone = plan_of({"island0": ()}, bodies=[{"island0": ()}])
    for stated, ranks, branches in (
        (plan_of(both), ONE_EACH, shared),
        (plan_of({"island0": both["island0"], "island1": ()}), ONE_EACH, None),
        (alone, ONE_EACH, {}),
        (plan_of({"island0": ()}), RankTable({"island0": 2}), {-1: ("vote", frozenset({"island0/0", "island0/1"}))}),
    ):
        islands = [stream.island for stream in stated.streams]
        named = expecting().check(load(b"plan"), stated, ranks)
        assert named == loaded_as(b"plan", islands, branches, sequential=False)


def test_a_number_of_an_unloaded_plan_is_forgotten() -> None:
    loads = expecting()
    loads.prove(PLAN, loads.check(load(b"plan"), STATED, ONE_EACH))
    loads.unload(PLAN + 1)
    assert code_of(loads, load(b"other")) == "PWC0911"
    loads.unload(PLAN)
    loads.unload(first_id(9))
    assert code_of(loads, load(b"other")) == ""


def test_a_number_stands_for_one_plan_once_it_is_proven() -> None:
    loads = expecting()
    named = loads.check(load(b"plan"), STATED, ONE_EACH)
    assert code_of(loads, load(b"other")) == ""  # the first was not loaded in the end
    loads.prove(PLAN, named)
    assert code_of(loads, load(b"other")) == "PWC0911" == code_of(loads, load(b"plan", sequential=True))
    assert code_of(loads, load(b"plan")) == "" and code_of(loads, load(b"other", PLAN + 1)) == ""


def test_without_a_key_nothing_is_named_or_proven() -> None:
    loads = ProvenLoads()
    assert loads.check(load(b"plan"), STATED, ONE_EACH) == "" and loads.prove(PLAN, "a plan") == b""
    loads = expecting()
    assert loads.check(load(b"plan", first_id(4)), STATED, ONE_EACH) == "" and loads.prove(PLAN, "") == b""


def test_a_client_that_is_gone_leaves_its_numbers_to_the_next() -> None:
    loads = expecting()
    loads.prove(PLAN, loads.check(load(b"plan"), STATED, ONE_EACH))
    loads.forget(4)
    assert code_of(loads, load(b"other")) == "PWC0911"
    loads.forget(3)
    loads.forget(3)
    assert loads.check(load(b"other"), STATED, ONE_EACH) == ""
    loads.expect(m.Expect(3, "ticket", "member", KEY))
    assert code_of(loads, load(b"other")) == ""


@pytest.mark.parametrize(
    ("given", "value", "blob"), [("said", "said", b""), (b"raw", "", b"raw"), (("said", b"raw"), "said", b"raw")]
)
def test_an_answer_has_a_value_bytes_or_both(given: Any, value: str, blob: bytes) -> None:
    posted: list[m.Message] = []
    post_answer(7, lambda: given, posted.append, "island0", "a load")
    assert posted == [m.Answer(7, value=value, blob=blob)]


def test_work_that_fails_is_answered_with_its_reason() -> None:
    posted: list[Any] = []
    given = BadMessage("a test", "none")

    def refuses() -> str:
        raise PathwaysError(given)

    def breaks() -> str:
        raise KeyError("plan 3")

    for work in (refuses, breaks):
        post_answer(7, work, posted.append, "island0", "a load")
    assert [answer.request for answer in posted] == [7, 7] and posted[0].error == write_diagnostic(given)
    said = str(PathwaysError(read_diagnostic(posted[1].error)))
    assert "a load failed on island0" in said and "plan 3" in said


def test_a_message_to_a_client_that_is_gone_is_dropped() -> None:
    posted: list[m.Message] = []
    message, room = m.Answer(1), list[int]()
    connection: Any = SimpleNamespace(post=posted.append, wait_for_room=lambda: room.append(1))
    post = ClientPost(connection)
    post(message)
    post.wait_for_room()
    assert posted == [message] and room == [1]

    def ended(_: m.Message) -> None:
        raise ConnectionEnded("gone")

    connection.post = ended
    post(message)


def result(number: int) -> PartResult:
    return PartResult(number, 0, ("f", "island0", None), None)


FAILED = ComputationFailed(computation="f", island="island0", cause="a reason")
GOOD: Any = SimpleNamespace(block_until_ready=lambda: None)


def numbers(found: NotANumber | None, step: int = 9) -> NumbersOnHost:
    made = NumbersOnHost(NANS)
    made.found, made.step = found, step
    return made


def test_a_good_run_ends_with_the_time_that_it_took() -> None:
    for looked in (None, numbers(None)):
        assert end_of_run(5, 1.5, [(result(0), GOOD)], looked) == m.Done(5, 1_500_000_000)


def test_a_bad_run_ends_with_the_causes_of_its_missing_results() -> None:
    results = [(result(0), GOOD), (result(4), Poison(FAILED)), (result(6), GOOD)]
    assert end_of_run(5, 0.25, results, numbers(None)) == m.Failed(5, 250_000_000, {"4": write_diagnostic(FAILED)})


def test_what_was_found_in_numbers_is_said_with_its_step() -> None:
    found = NotANumber(computation="f", island="island0", have_="NaN", setting="jax.debug_nans", where=None)
    said = end_of_run(5, 1.0, [(result(4), Poison(FAILED))], numbers(found))
    assert said == m.Failed(5, 1_000_000_000, {"4": write_diagnostic(FAILED)}, write_diagnostic(found), 9)
    assert end_of_run(5, 1.0, [], numbers(found)) == m.Failed(5, 1_000_000_000, {}, write_diagnostic(found), 9)


def test_an_input_that_nothing_reads_takes_no_memory() -> None:
    assert PartInput(-1, ArrayType((4,), "int8"), None).put(b"1234") is None
    poison = Poison(FAILED)
    assert copy_if_array(poison) is poison
