"""Tests of which other classes an error is an instance."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any, ClassVar

import jax
import pytest

from pathways.dialect.diagnostics import MAX_SHOWN, Diagnostic, InternalError, PathwaysError, Where
from pathways.dialect.errors import BadArguments
from pathways.runtime.errors import failed_because

DIAGNOSTIC = BadArguments(problem="p", have_="h", rule="r", advice="a")


class OddInitError(Exception):
    """Takes other arguments, and cannot be shown without them."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)
        self.two = two

    def __str__(self) -> str:
        return str(self.two)


class OddNewError(Exception):
    """Cannot be made without arguments."""

    def __new__(cls, *given: object) -> "OddNewError":
        if not given:
            raise TypeError("an argument is needed")
        return super().__new__(cls, *given)


class UnderivableError(Exception):
    """No class can be derived from it."""

    def __init_subclass__(cls) -> None:
        raise TypeError("final")


class SetterlessError(Exception):
    """Has a property of the name of an attribute of every error."""

    @property
    def diagnostic(self) -> str:
        return ""


@dataclasses.dataclass
class FieldsError(Exception):
    """Has fields that a constructor must set, and so no hash."""

    a: int


ALSO: tuple[type[Exception], ...] = (
    OddInitError,
    FieldsError,
    OSError,
    FileNotFoundError,
    KeyError,
    UnicodeDecodeError,
    ImportError,
    jax.errors.JaxRuntimeError,
    jax.errors.TracerBoolConversionError,
)


@pytest.mark.parametrize("also", ALSO)
def test_an_error_is_also_of_the_class_that_it_follows_from(also: type[Exception]) -> None:
    error = PathwaysError(DIAGNOSTIC, also=(also,))
    assert isinstance(error, also) and isinstance(error, TypeError) and isinstance(error, ValueError)
    assert str(error).startswith("error[PWC0104]: p") and error.diagnostic == DIAGNOSTIC
    assert repr(error) and hash(error) and error in {error}
    again: Any = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.diagnostics == error.diagnostics


@pytest.mark.parametrize(
    "also", [OddNewError, UnderivableError, SetterlessError, StopIteration, StopAsyncIteration, AttributeError]
)
def test_a_class_that_cannot_be_joined_is_left_out(also: type[Exception]) -> None:
    error = PathwaysError(DIAGNOSTIC, also=(also, KeyError))
    assert not isinstance(error, also) and isinstance(error, KeyError) and error.code == "PWC0104"


def test_an_error_of_a_local_class_can_be_pickled() -> None:
    class LocalError(Exception):
        """Is not found by its name."""

    error = PathwaysError(DIAGNOSTIC, also=(LocalError,))
    assert isinstance(error, LocalError) and pickle.loads(pickle.dumps(error)).code == "PWC0104"


def test_a_class_and_its_base_can_be_joined_in_any_order() -> None:
    for also in ((OSError, FileNotFoundError), (FileNotFoundError, OSError)):
        assert isinstance(PathwaysError(DIAGNOSTIC, also=also), FileNotFoundError)


def test_a_failed_computation_is_also_a_runtime_error_of_jax() -> None:
    error = PathwaysError(failed_because("f", island="i", cause="c"))
    assert isinstance(error, jax.errors.JaxRuntimeError) and not isinstance(error, TypeError)


class Spilled(Diagnostic):
    """Has templates for all parts of a message."""

    title: ClassVar[str] = "{what} is spilled"
    have: ClassVar[str] = "{amount} l"
    need: ClassVar[str] = "a cloth\nand a bucket"
    hint: ClassVar[str] = ""
    what: str = "milk"
    amount: int = 3


def test_a_message_names_the_line_and_what_to_do(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text("x = 1\n    y = 2\t\n")
    where = Where("model.py", 2, "step", str(source))
    assert Spilled(where=where).render().splitlines() == [
        "error[PWC0000]: milk is spilled",
        f"  --> {source}:2  in step",
        "      2 | y = 2",
        "  have:  3 l",
        "  need:  a cloth",
        "         and a bucket",
    ]
    assert Spilled(where=Where("no.py", 7)).render().splitlines()[1:3] == ["  --> no.py:7", "  have:  3 l"]
    assert Spilled().render().splitlines()[1] == "  have:  3 l" and Spilled(amount=4).brief == "milk is spilled: 4 l"


def test_a_message_is_also_json() -> None:
    where = Where("model.py", 2, "step", "/home/me/model.py")
    parts = {"code": "PWC0000", "title": "milk is spilled", "have": "3 l", "need": "a cloth\nand a bucket", "try": ""}
    assert Spilled().as_json() == parts | {"where": None}
    line = {"file": "/home/me/model.py", "line": 2, "function": "step"}
    assert Spilled(where=where).as_json() == parts | {"where": line}
    assert Where("model.py", 2).as_json() == {"file": "model.py", "line": 2, "function": ""}


def test_a_place_shows_the_file_on_this_machine() -> None:
    assert str(Where("model.py", 2)) == Where("model.py", 2).at == "model.py:2"
    here = Where("model.py", 2, "f", "/here/model.py")
    assert (here.at, str(here)) == ("/here/model.py:2", "/here/model.py:2  in f") and here == Where("model.py", 2, "f")


def test_a_source_line_is_empty_where_it_cannot_be_read(tmp_path: Path) -> None:
    source, empty = tmp_path / "one.py", tmp_path / "empty.py"
    source.write_text("z")
    empty.write_text("")
    assert Where("one.py", 1, here=str(source)).source() == "z" and Where(str(source), 1).source() == "z"
    assert [Where(str(p), 1).source() for p in (empty, tmp_path, tmp_path / "none.py")] == ["", "", ""]
    assert Where(str(source), 9).source() == "" and Where("a\0b", 1).source() == ""


def test_violations_are_shown_once_and_not_without_end() -> None:
    many = [Spilled(amount=n) for n in range(MAX_SHOWN + 5)]
    error = PathwaysError(*many)
    assert error.diagnostics == tuple(many) and error.diagnostic is many[0] and error.code == "PWC0000"
    assert str(error).count("error[") == MAX_SHOWN and f"{MAX_SHOWN} l" not in str(error)
    assert str(PathwaysError(many[0], many[1], many[0])).count("error[") == 2


def test_an_internal_error_asks_for_a_report() -> None:
    assert str(InternalError("x is y")).startswith("internal error: x is y.") and "file a bug" in str(InternalError(""))
