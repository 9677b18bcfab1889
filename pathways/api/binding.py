"""Matches the arguments of a call with the parameters of a program's function, like `inspect.signature.bind`. An
argument is an array to trace, or a static constant. `program.py` uses it for every call.

Static arguments are part of the cache key.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from pathways.dialect.plan.signature import EITHER, NAME, POSITION, Parameter

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_MAX_SHOWN_CHARS = 40


@dataclass(frozen=True)
class BoundCall:
    """The arguments of a call, bound to parameters. `static` are (place, type, value): 2, 2.0 and True differ.

    `places` are the positions of the dynamic values among all bound values. `given` has the number or keyword of each
    dynamic value, by which options refer to it; `names` has its name. `parameters` are all parameters, as a compiled
    program takes them.
    """

    static: tuple[tuple[int, type, Any], ...]
    places: tuple[int, ...]
    given: tuple[int | str, ...]
    names: tuple[str, ...]
    keywords: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        return self.static, self.places, self.given, self.names, self.keywords

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `function` as a function of only the dynamic arguments."""
        total = len(self.static) + len(self.places)
        positional = total - len(self.keywords)

        def of_dynamic(*dynamic: Any) -> Any:
            values = {place: value for place, _, value in self.static}
            values |= dict(zip(self.places, dynamic, strict=True))
            full = [values[i] for i in range(total)]
            return function(*full[:positional], **dict(zip(self.keywords, full[positional:], strict=True)))

        return of_dynamic


@dataclass(frozen=True)
class Chosen:
    """Parameters selected by options: numbers of those passed by position, names of those passed by keyword."""

    numbers: frozenset[int]
    names: frozenset[str]

    def has(self, given: int | str) -> bool:
        return given in (self.numbers if isinstance(given, int) else self.names)

    def __and__(self, other: "Chosen") -> "Chosen":
        return Chosen(self.numbers & other.numbers, self.names & other.names)

    def __bool__(self) -> bool:
        return bool(self.numbers or self.names)


class CallSignature:
    """The signature of a program's function, and its static parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.python = _own_signature(function)
        """The signature of the function itself, ignoring what it wraps."""
        self._shown = _shown_signature(function) or self.python
        self.static = Chosen(frozenset(), frozenset())

    def choose(self, argnums: int | Sequence[int], argnames: str | Sequence[str]) -> Chosen:
        """Finds the parameters with these numbers (negative ones count from the end) and names.

        They refer to the signature that the function shows, as for `jax.jit`. Raises ValueError with the expected
        values if a parameter does not exist.
        """
        parameters = self._shown.parameters
        kinds = {p.kind for p in (*parameters.values(), *self.python.parameters.values())}
        count = 1 << 16 if inspect.Parameter.VAR_POSITIONAL in kinds else len(parameters)
        order = list(parameters)
        numbers: set[int] = set()
        names: set[str] = set()
        for number in (argnums,) if isinstance(argnums, int) else tuple(argnums):
            if not -count <= number < count:
                raise ValueError(f"numbers below {count}")
            numbers.add(number % count)
            names.update(n for n in order[number % count : number % count + 1] if parameters[n].kind in _NAMED)
        for name in (argnames,) if isinstance(argnames, str) else tuple(argnames):
            if name in parameters:
                if parameters[name].kind in _POSITIONAL:
                    numbers.add(order.index(name))
            elif inspect.Parameter.VAR_KEYWORD not in kinds:
                raise ValueError(f"names among {', '.join(order) or 'none'}")
            names.add(name)
        return Chosen(frozenset(numbers), frozenset(names))

    @property
    def plain(self) -> BoundCall | None:
        """The binding of most calls: all arguments by position, none static. None if the function has no such call."""
        parameters = self.python.parameters
        if self.static or any(p.kind not in _POSITIONAL for p in parameters.values()):
            return None
        names, places = tuple(parameters), tuple(range(len(parameters)))
        return BoundCall((), places, places, names, (), tuple(_parameter(p, p.name, ()) for p in parameters.values()))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[BoundCall, tuple[Any, ...]]:
        """Binds a call. Returns it and the values of its dynamic arguments. Raises TypeError as Python does."""
        bound = self.python.bind(*args, **kwargs)
        found = _bound_parameters(self.python, bound, self._shown)
        keywords = tuple(bound.kwargs)
        values: list[Any] = [*bound.args, *bound.kwargs.values()]
        given = self._given(len(args), found, keywords)
        is_static = [self.static.has(how) for how in given]
        places = tuple(i for i, static in enumerate(is_static) if not static)
        made = BoundCall(
            tuple((i, v.__class__, v) for i, v in enumerate(values) if is_static[i]),
            places,
            tuple(given[i] for i in places),
            tuple(found[i][1] for i in places),
            keywords,
            tuple(
                _parameter(kind, name, keywords, _shown(value) if static else "")
                for (_, name, kind), value, static in zip(found, values, is_static, strict=True)
            ),
        )
        return made, tuple(values[i] for i in places)

    def _given(
        self, positions: int, found: Sequence[tuple[int, str, inspect.Parameter]], keywords: Sequence[str]
    ) -> list[int | str]:
        """Returns the number of each value passed by position, and the keyword of the others.

        A parameter that may be passed either way counts by its number. The exception is a function that shows other
        parameters than its own: numbers and names may then differ, as for `jax.jit`.
        """
        named = len(found) - len(keywords)
        first = positions if self._shown != self.python else named
        return [
            number if at < first else (name if at >= named else kind.name)
            for at, (number, name, kind) in enumerate(found)
        ]


def _shown_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Returns the signature from `inspect.signature`: that of the wrapped function, if there is one."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _own_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature for calling the function, ignoring `functools.wraps` and `__signature__`."""
    if isinstance(function, FunctionType) and hasattr(function, "__signature__"):
        bare = FunctionType(function.__code__, function.__globals__, "", function.__defaults__, function.__closure__)
        bare.__kwdefaults__ = function.__kwdefaults__
        function = bare
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        any_args = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([any_args, inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])


def _bound_parameters(
    signature: inspect.Signature, bound: inspect.BoundArguments, shown: inspect.Signature
) -> list[tuple[int, str, inspect.Parameter]]:
    """Lists for each value of `bound.args` and `bound.kwargs` its parameter's number, its name, and the parameter.

    Values of `*args` have the names that the signature `shown` gives to their positions, if it gives any.
    """
    positional = [p.name for p in shown.parameters.values() if p.kind in _POSITIONAL]
    taken = {*signature.parameters, *bound.kwargs}
    numbers = {name: i for i, name in enumerate(signature.parameters)}
    found: list[tuple[int, str, inspect.Parameter]] = []
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            first = numbers[name]
            for i in range(len(value)):
                named = positional[first + i] if first + i < len(positional) else name
                found.append((first + i, f"{name}[{i}]" if named in taken else named, parameter))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found += [(-1, keyword, parameter) for keyword in value]
        else:
            found.append((numbers[name], name, parameter))
    return found


def _parameter(parameter: inspect.Parameter, name: str, keywords: Sequence[str], static: str = "") -> Parameter:
    """Describes a parameter of the compiled program. After an omitted default, Python accepts only keywords."""
    if name in keywords and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
        return Parameter(name, NAME, static)
    either = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(name, EITHER if either else POSITION, static)


def _shown(value: Any) -> str:
    """Formats a static value for messages. The text is the same in every process."""
    text = repr(value) if isinstance(value, _SIMPLE) else f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 3]}..."
