"""Arguments of a call are put in the order of the compiled parameters. Wrong calls are refused with the reason."""

from typing import Any

import pytest

from pathways.dialect.plan.signature import (
    EITHER,
    NAME,
    POSITION,
    Parameter,
    arguments_in_order,
    parameter_problem,
    read_parameters,
    shown,
    write_parameters,
)  # fmt: skip

PARAMETERS = (
    Parameter("x", POSITION), Parameter("n", EITHER, "3"), Parameter("y", EITHER), Parameter("p", POSITION, "4"),
    Parameter("scale", NAME), Parameter("mode", NAME, "'fast'"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, 2), {"scale": 3}), ((1,), {"scale": 3, "y": 2}), ((1,), {"y": 2, "scale": 3})],
)
def test_arguments_come_in_the_order_of_their_parameters(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    assert arguments_in_order(PARAMETERS, args, kwargs) == (1, 2, 3)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3), {}, "3 positional arguments, where 2 are accepted"),
        ((1, 2), {}, "scale missing"),
        ((), {}, "x, y, scale missing"),
        ((), {"x": 1, "y": 2, "scale": 3}, "x is passed, which is not an argument"),
        ((1, 2), {"y": 2, "scale": 3}, "y is passed twice"),
        ((1, 2), {"scale": 3, "n": 3}, "n is passed, but its value was compiled in"),
        ((1, 2), {"scale": 3, "mode": 3}, "mode is passed, but its value was compiled in"),
        ((1, 2), {"scale": 3, "p": 3}, "p is passed, which is not an argument"),
        ((1, 2), {"scale": 3, "z": 3}, "z is passed, which is not an argument"),
    ],
)
def test_a_wrong_call_is_refused_with_the_reason(args: tuple[int, ...], kwargs: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        arguments_in_order(PARAMETERS, args, kwargs)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ((), "f()"),
        ((Parameter("x", EITHER),), "f(x)"),
        ((Parameter("x", POSITION), Parameter("y", EITHER)), "f(x, /, y)"),
        ((Parameter("x", POSITION),), "f(x, /)"),
        ((Parameter("x", NAME), Parameter("y", NAME)), "f(*, x, y)"),
        ((Parameter("x", EITHER), Parameter("n", EITHER, "3")), "f(x), n=3 compiled in"),
        (PARAMETERS, "f(x, /, y, *, scale), n=3, p=4, mode='fast' compiled in"),
    ],
)
def test_a_signature_is_shown_as_python_writes_it(parameters: tuple[Parameter, ...], text: str) -> None:
    assert shown("f", parameters) == text and read_parameters(write_parameters(parameters)) == parameters


@pytest.mark.parametrize("text", ["", "{}", "3", "[3]", '[["x","name"]]', '[["x","name",3]]', '[["x","name","",""]]'])
def test_text_that_lists_no_parameters_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_parameters(text)


@pytest.mark.parametrize(
    ("parameters", "arguments", "problem"),
    [
        ((), 7, None),
        (PARAMETERS, 3, None),
        (PARAMETERS, 4, "3 parameters for 4 arguments"),
        ((Parameter("x", "any"),), 1, "a parameter that is passed by 'any'"),
        ((Parameter("x", EITHER), Parameter("x", NAME)), 2, "two parameters with the same name"),
        ((Parameter("x", POSITION), Parameter("x", NAME)), 2, None),
    ],
)
def test_problems_of_parameters_are_described(parameters: Any, arguments: int, problem: str | None) -> None:
    assert parameter_problem(parameters, arguments) == problem
