"""Tests that a client can name only its own arrays."""

from typing import Any, get_type_hints

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.client_ids import ClientIds
from pathways.runtime.wire import encoding
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import MOST_CLIENTS, check_arrays, client_of, first_id

IDS = {"array", "arrays", "source", "target", "results", "arguments"}
"""Fields of messages that name arrays."""
EMPTY: dict[Any, Any] = {int: 0, bool: False, str: "", bytes: b"", dict[str, str]: {}}
NAMING = [(cls, name) for cls in encoding.MESSAGES for name in get_type_hints(cls) if name in IDS and cls is not m.Beat]


def message_of(cls: Any, client: int, **others: int) -> Any:
    """Makes a message whose arrays are of `client`, except for the fields in `others`."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        number = first_id(others.get(name, client)) + 7
        values[name] = EMPTY.get(hint, ()) if name not in IDS or cls is m.Beat else number if hint is int else (number,)
    return cls(**values)


@pytest.mark.parametrize("cls", encoding.MESSAGES)
def test_a_message_about_its_clients_own_arrays_is_accepted(cls: Any) -> None:
    for client in (0, 1, MOST_CLIENTS - 1):
        made = message_of(cls, client)
        check_arrays(made, client, "client me of demo")
        kind, payload, blob = encoding.encode(made)
        assert encoding.decode(kind, payload + blob) == made  # ids of this size can be encoded


@pytest.mark.parametrize(("cls", "name"), NAMING)
def test_a_message_about_another_clients_array_is_refused(cls: Any, name: str) -> None:
    for client, other in ((0, 1), (3, 2), (MOST_CLIENTS - 1, 0)):
        with pytest.raises(PathwaysError, match="client me of demo names what is another client's") as caught:
            check_arrays(message_of(cls, client, **{name: other}), client, "client me of demo")
        assert caught.value.code == "PWC0916" and f"which is of client {other}" in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        m.FreeArrays((first_id(3), first_id(3) + 1, -2)),
        m.FetchArray(0, -(1 << 63), 0),
        m.RunPlan(0, 0, 0, first_id(4) - 2, ()),  # only the first results are its client's
        m.RunPlan(0, 0, 0, first_id(3), (-1, first_id(3), first_id(4))),
        m.CopyArray(first_id(3), -1),
    ],
)
def test_every_array_number_of_a_message_is_checked(bad: m.Message) -> None:
    with pytest.raises(PathwaysError) as caught:
        check_arrays(bad, 3, "client three")
    assert caught.value.code == "PWC0916"


def test_an_unused_argument_is_not_checked_as_an_array() -> None:
    check_arrays(m.RunPlan(0, 0, 0, first_id(3), (-1, first_id(3))), 3, "client three")


def test_client_numbers_start_at_zero_and_are_limited() -> None:
    assert client_of(ClientIds(0).take()) == 0 == client_of(first_id(0))
    for client in (-1, MOST_CLIENTS):
        with pytest.raises(ValueError, match="client"):
            first_id(client)
