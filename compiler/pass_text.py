"""Parses a list of passes that a user writes on the command line:
`propagate-shardings,place{policy=pinned},my_order.py:Backwards`. `pwc compile` and `pwc opt` call it.
"""

import inspect
import re
from dataclasses import fields
from typing import Any, TypeGuard

from pathways.compiler.errors import UnknownPass
from pathways.compiler.pass_manager import PASSES
from pathways.compiler.passes.base import Pass
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.phases import Phase
from pathways.dialect.plugins import PluginError, entry_point_names, find_plugin
from pathways.dialect.user_line import where_of_exception

_PASS = re.compile(r"\s*([\w./:-]+)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")


def read_passes(text: str) -> list[Pass]:
    """Parses a list of passes. Raises PWC0705 with the known names for an unknown one."""
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _PASS.match(text, position)
        if match is None:
            raise _unknown("the list of passes cannot be read", text[position:])
        passes.append(_make(match[1], match[2] or ""))
        position = match.end()
    return passes


def _make(name: str, options: str) -> Pass:
    cls = PASSES[name] if name in PASSES else _users(name)
    known = {f.name: f.type for f in fields(cls)}
    values: dict[str, Any] = {}
    for option in options.split():
        key, equals, value = option.partition("=")
        key = key.replace("-", "_")
        if key not in known or not equals:
            raise _unknown(f"the pass {name} has no such option", option, tuple(known))
        values[key] = _value(name, option, str(getattr(known[key], "__name__", known[key])), value)
    try:
        return cls(**values)
    except Exception as error:
        have = f"{type(error).__name__}: {error}"
        raise _unknown(f"the pass {name} cannot be created", have, tuple(known), where_of_exception(error)) from error


def _value(name: str, option: str, kind: str, text: str) -> Any:
    """Converts an option to the type of its field. Text is kept for types that are neither flag nor number."""
    kind = kind.removesuffix(" | None")
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float}.get(kind, str)(text)
    except (KeyError, ValueError):
        rule = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise _unknown(f"an option of the pass {name} is not valid", option, (rule,)) from None


def _users(name: str) -> type[Pass]:
    """Finds a user's pass: a subclass of `Pass` in a file, or an entry point. Raises PWC0705."""
    try:
        found = find_plugin(name)
    except PluginError as error:
        known = ", ".join((*PASSES, *entry_point_names()))
        problem = "there is no such pass"
        diagnostic = UnknownPass(problem=problem, have_=error.have, known=known, where=error.where)
        raise PathwaysError(diagnostic) from error
    if not _is_pass(found):
        kind: str = found.__class__.__name__
        raise _unknown(f"{name} is not a pass", f"a {kind}", ("a subclass of pathways.compiler.passes.base.Pass",))
    _check_stated(name, found)
    found.spelled = name
    return found


def _check_stated(name: str, found: type[Pass]) -> None:
    """Raises PWC0705 for a pass without a name, or with an unknown phase."""
    where = _line_of(found)
    if not isinstance(getattr(found, "name", None), str):
        raise _unknown(f"the pass {name} has no name", "no name", ('name = "my-order"',), where)
    for what in ("requires", "ensures"):
        stated = getattr(found, what, None)
        if stated not in list(Phase):
            have = f"no {what}" if stated is None else f"{what} = {stated!r}"
            raise _unknown(f"the pass {name} does not set `{what}` to a phase", have, tuple(Phase), where)


def _line_of(cls: type) -> Where | None:
    """Returns the file and line of a class, if known."""
    try:
        return Where(inspect.getfile(cls), inspect.getsourcelines(cls)[1])
    except (OSError, TypeError):
        return None


def _is_pass(found: Any) -> TypeGuard[type[Pass]]:
    return isinstance(found, type) and issubclass(found, Pass)


def _unknown(
    problem: str, have: str, known: tuple[str, ...] = tuple(PASSES), where: Where | None = None
) -> PathwaysError:
    return PathwaysError(UnknownPass(problem=problem, have_=have, known=", ".join(known) or "no options", where=where))
