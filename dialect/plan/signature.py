"""Describes the parameters of a compiled program, so that it can be called like the user's Python function. The API
binds the arguments of each call with it. Front ends write it into IR and plans.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import takewhile
from typing import Any, cast

POSITION, EITHER, NAME = HOWS = ("position", "either", "name")
"""The ways to pass an argument."""
PARAMETERS = "pw.parameters"
"""The module attribute that holds the parameters of the program."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the compiled call. If it is static, `static` shows the value that was compiled in."""

    name: str
    how: str
    static: str = ""


def arguments_in_order(
    parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Orders the arguments of a call by parameter, without static ones. Raises TypeError with the reason."""
    taken = [p for p in parameters if not p.static]
    places = [i for i, p in enumerate(taken) if p.how != NAME]
    if len(args) > len(places):
        raise TypeError(f"{len(args)} positional arguments, where {len(places)} are accepted")
    given = dict(zip(places, args, strict=False))
    numbers = {p.name: i for i, p in enumerate(taken) if p.how != POSITION}
    static = {p.name for p in parameters if p.static and p.how != POSITION}
    for name, value in kwargs.items():
        if name in static:
            raise TypeError(f"{name} is passed, but its value was compiled in")
        if name not in numbers:
            raise TypeError(f"{name} is passed, which is not an argument")
        if numbers[name] in given:
            raise TypeError(f"{name} is passed twice")
        given[numbers[name]] = value
    if missing := [p.name for i, p in enumerate(taken) if i not in given]:
        raise TypeError(f"{', '.join(missing)} missing")
    return tuple(given[i] for i in range(len(taken)))


def shown(program: str, parameters: Sequence[Parameter]) -> str:
    """Formats the signature as in Python, then the static arguments: `step(x, *, scale), n=3 compiled in`."""
    taken = [p for p in parameters if not p.static]
    leading = list(takewhile(lambda p: p.how == POSITION, taken))
    named = [p.name for p in taken if p.how == NAME]
    others = [p.name for p in taken[len(leading) :] if p.how != NAME]
    parts = [p.name for p in leading] + ["/"] * bool(leading) + others + ["*"] * bool(named) + named
    static = ", ".join(f"{p.name}={p.static}" for p in parameters if p.static)
    return f"{program}({', '.join(parts)})" + (f", {static} compiled in" if static else "")


def write_parameters(parameters: Sequence[Parameter]) -> str:
    """Serializes parameters as text for the IR."""
    return json.dumps([astuple(p) for p in parameters], separators=(",", ":"))


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Parses parameters. Raises ValueError for other text."""
    rows: Any = json.loads(text)
    if not isinstance(rows, list):
        raise ValueError("parameters that are not a list")
    return tuple(_read(row) for row in cast("list[Any]", rows))


def _read(row: Any) -> Parameter:
    match row:
        case [str(name), str(how), str(static)]:
            return Parameter(name, how, static)
        case _:
            raise ValueError(f"{row!r} for a parameter")


def parameter_problem(parameters: Sequence[Parameter], arguments: int) -> str | None:
    """Describes the first error in parameters; `arguments` is the expected count. Plans of older writers have none."""
    if not parameters:
        return None
    count = sum(not p.static for p in parameters)
    if count != arguments:
        return f"{count} parameters for {arguments} arguments"
    if odd := [p.how for p in parameters if p.how not in HOWS]:
        return f"a parameter that is passed by {odd[0]!r}"
    names = [p.name for p in parameters if p.how != POSITION]
    return "two parameters with the same name" if len(set(names)) != len(names) else None
