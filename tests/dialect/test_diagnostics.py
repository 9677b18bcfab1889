"""Tests of which other classes an error is an instance."""

import dataclasses
import pickle
from typing import Any

import jax
import pytest

from pathways.compiler.errors import BadArguments
from pathways.dialect.diagnostics import PathwaysError
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
