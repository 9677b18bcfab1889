"""Shares compiled code between all programs of one Python function with the same options, as `jax.jit` does: a library
that calls `jit(f)(x)` in each step makes a new program each time, and compiles once.
"""

import threading
import types
import weakref
from collections.abc import Callable, Collection, Hashable
from typing import Any

_NAME = "__pathways_code__"
_MAKING = threading.Lock()


class Code:
    """The compiled code of a function with certain options."""

    def __init__(self) -> None:
        self.compiled: dict[tuple[Any, int], dict[Any, Any]] = {}
        """Each `Compiled`, by JAX settings and number of the machine, then by signature."""
        self.latest: tuple[Any, dict[Any, Any]] = None, {}
        """The latest entry of `compiled`."""
        self.hot: tuple[Callable[[tuple[Any, ...]], Any], Any] | None = None
        """The latest `DirectCalls.of_arguments` without a mesh around them, and their JAX settings and machine."""
        self.of_values: dict[Any, Any] = {}
        """The programs on the values of mutable arrays, by signature."""

    def under(self, settings: tuple[Any, int], machines: Collection[int]) -> dict[Any, Any]:
        """Returns the code for JAX settings and a machine, by signature. Drops code for other than these machines."""
        found = self.compiled.get(settings)
        if found is None:
            for key in list(self.compiled):
                if key[1] not in machines:
                    self.compiled.pop(key, None)  # another thread may drop it, too
            found = self.compiled.setdefault(settings, {})
        self.latest = settings, found
        return found

    def clear(self) -> None:
        """Drops all code."""
        self.compiled, self.of_values = {}, {}
        self.latest, self.hot = (None, {}), None


class _OnFunction:
    """All code of one function, as an attribute of the function: both are freed together, although code refers to it.

    The owner is checked, since `functools.wraps` copies attributes. Pickled with its function, it is an empty dict.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self.owner = weakref.ref(function)
        self.code: dict[Hashable, Code] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()


def shared_code_of(function: Callable[..., Any], options: Hashable) -> Code:
    """Returns what all programs of a Python function with these options share. Other callables share nothing."""
    if not isinstance(function, types.FunctionType):
        return Code()
    attributes = function.__dict__
    with _MAKING:
        found = attributes.get(_NAME)
        if not isinstance(found, _OnFunction) or found.owner() is not function:
            found = attributes[_NAME] = _OnFunction(function)
        return found.code.setdefault(options, Code())
