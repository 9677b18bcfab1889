"""Tests that a message of a client is refused if a field uses an array of another client, or breaks its rule."""

from dataclasses import dataclass
from typing import Any, get_type_hints

import pytest

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.host.clients import MAY
from pathways.runtime.wire import encoding
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import (
    MAX_NAME,
    MAX_TEXT,
    Cause,
    Count,
    Id,
    ItsClient,
    Number,
    Owned,
    Rule,
    Text,
    check_fields,
    named,
    rules_of,
)
from pathways.runtime.wire.frames import Bytes
from pathways.runtime.wire.ids import MAX_CLIENTS, MAX_RESULTS, NONE, ClientIds, client_of, first_id

CAUSE = write_diagnostic(BadMessage("a test", "none"))
EMPTY: dict[Any, Any] = {
    int: 0, bool: False, str: "", bytes: b"", Bytes: b"", dict[str, str]: {}, dict[int, tuple[int, ...]]: {},
    dict[int, tuple[str, frozenset[str]]] | None: None,
}  # fmt: skip
AFTER_RUNS = (m.PutPoison, m.CopyArray, m.FreeArrays, m.UnloadPlan)
OF_CLIENTS = {
    m.ClientHello, m.Attach, m.ChangeIslands, m.Introduce, m.Retire, m.Loaded, m.Submit, m.Relayed, m.Hold, m.Cancel,
    m.Ask, m.RunPlan, m.Calling, m.Returned, *AFTER_RUNS, *MAY,
}  # fmt: skip
OWNED = [(cls, n) for cls in encoding.MESSAGES for n, rule in rules_of(cls) if isinstance(rule, Owned)]


def message_of(cls: Any, client: int, /, **changed: Any) -> Any:
    """Makes a valid message of a client, except for the fields in `changed`."""
    rules = dict(rules_of(cls))
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        match rules.get(name):
            case Owned():
                values[name] = first_id(client) + 7 if hint is int else (first_id(client) + 7,)
            case ItsClient():
                values[name] = client
            case Number(least=least):
                values[name] = least
            case Cause():
                values[name] = CAUSE
            case _:
                values[name] = EMPTY.get(hint, ())
    return cls(**(values | changed))


def code(message: Any, client: int) -> str:
    with pytest.raises(PathwaysError) as caught:
        check_fields(message, client, "client me of demo")
    return caught.value.code


@pytest.mark.parametrize("cls", encoding.MESSAGES)
def test_a_valid_message_is_accepted_and_can_be_encoded(cls: Any) -> None:
    for client in (0, 1, MAX_CLIENTS - 1):
        made = message_of(cls, client)
        check_fields(made, client, "client me of demo")
        kind, payload, blob = encoding.encode(made)
        assert encoding.decode(kind, payload + blob) == made


@pytest.mark.parametrize(("cls", "name"), OWNED)
def test_an_id_of_another_client_is_refused(cls: Any, name: str) -> None:
    is_one = get_type_hints(cls)[name] is int
    for client, other in ((0, 1), (3, 2), (MAX_CLIENTS - 1, 0)):
        theirs = first_id(other)
        bad = message_of(cls, client, **{name: theirs if is_one else (first_id(client), theirs)})
        with pytest.raises(PathwaysError, match="client me of demo uses an array of another client") as caught:
            check_fields(bad, client, "client me of demo")
        assert caught.value.code == "PWC0916" and f"which belongs to client {other}" in str(caught.value)


def test_all_results_of_a_run_must_be_the_clients() -> None:
    last = first_id(4) - 1
    assert code(message_of(m.RunPlan, 3, results=last), 3) == "PWC0916"
    assert code(message_of(m.RunPlan, 3, results=last - MAX_RESULTS + 1), 3) == "PWC0916"
    check_fields(message_of(m.RunPlan, 3, results=last - MAX_RESULTS), 3, "client three")


def test_only_an_argument_may_be_none() -> None:
    check_fields(message_of(m.RunPlan, 3, arguments=(NONE, first_id(3))), 3, "client three")
    assert code(message_of(m.RunPlan, 3, arguments=(NONE - 1,)), 3) == "PWC0916"
    assert code(message_of(m.FreeArrays, 3, arrays=(NONE,)), 3) == "PWC0916"
    assert code(message_of(m.CopyArray, 3, target=NONE), 3) == "PWC0916"


@pytest.mark.parametrize(
    ("cls", "name", "values"),
    [
        (m.RunPlan, "transfers", (-1, 1 << 63)),
        (m.RunPlan, "wanted", (-1, 4)),
        (m.FetchArray, "shard", (-2, 1 << 40)),
        (m.Hold, "inside", (-1,)),
        (m.Submit, "weight", (-1,)),
        (m.Record, "client", (4,)),
        (m.Record, "limit", (-1,)),
        (m.ClientHello, "name", ("a\x1b[2J", "line\nline", "x" * (MAX_NAME + 1))),
        (m.Introduce, "name", ("\u202e",)),
        (m.LoadPlan, "path", ("x" * (MAX_TEXT + 1),)),
        (m.PutPoison, "cause", ("", "garbage", "[" * 100_000, "[]", "null", '{"class": 1}')),
        (m.Cancel, "cause", ("{}",)),
    ],
)
def test_a_field_that_breaks_its_rule_is_refused(cls: Any, name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        assert code(message_of(cls, 3, **{name: value}), 3) == "PWC0911"


def test_every_number_and_text_of_a_client_has_a_rule() -> None:
    """Except for numbers of requests and calls, which a client chooses for itself, and what has its own reader."""
    own = {"request", "call", "ticket", "functions", "memory", "client"}
    missing = [
        (cls.__name__, name)
        for cls in OF_CLIENTS
        for name, hint in get_type_hints(cls).items()
        if hint in (int, str, tuple[int, ...]) and name not in dict(rules_of(cls)) and name not in own
    ]
    assert not missing


def test_client_numbers_start_at_zero_and_are_limited() -> None:
    assert client_of(ClientIds(0).take()) == 0 == client_of(first_id(0))
    for client in (-1, MAX_CLIENTS):
        with pytest.raises(ValueError, match="client"):
            first_id(client)


@pytest.mark.parametrize(
    ("rule", "value", "accepted"),
    [
        (Number(-1, 5), -2, False), (Number(-1, 5), -1, True), (Number(-1, 5), 5, True), (Number(-1, 5), 6, False),
        (Text(3), "abc", True), (Text(3), "abcd", False), (Text(3), "a\nb", True), (Text(3, line=True), "a\nb", False),
        (Cause(), CAUSE.ljust(MAX_TEXT), True), (Cause(), CAUSE.ljust(MAX_TEXT + 1), False),
        (ItsClient(), 3, True), (ItsClient(), 2, False),
        (Owned(may_be_none=True), (NONE, first_id(3), NONE), True),
        (Owned(may_be_none=True), (NONE, first_id(4)), False),
        (Owned(), (), True),
    ],
)  # fmt: skip
def test_a_rule_accepts_all_values_up_to_its_limit(rule: Rule, value: Any, accepted: bool) -> None:
    assert (rule.broken(value, 3) is None) == accepted


def test_the_first_id_that_is_not_the_clients_is_named() -> None:
    theirs = first_id(4), first_id(5)
    assert Owned().broken((first_id(3), *theirs), 3) == theirs[0]
    assert Owned(following=2).broken(first_id(4) - 3, 3) == first_id(4) - 1


def test_rules_are_listed_for_annotated_fields_alone() -> None:
    @dataclass(frozen=True)
    class Made:
        request: int
        array: Id
        most: Count
        blob: bytes

    assert rules_of(Made) == (("array", Owned()), ("most", Number(0, 1 << 31)))


@pytest.mark.parametrize("text", ["", "plain", "two\nlines", "\x1b[2J", "x" * (MAX_NAME + 1), "\n" * MAX_NAME])
def test_any_text_is_converted_to_a_valid_name(text: str) -> None:
    made = named(text)
    check_fields(message_of(m.ClientHello, 3, name=made), 3, "client three")
    assert made == text or len(text) == MAX_NAME + 1 == len(made) + 1 or not text.isprintable()
