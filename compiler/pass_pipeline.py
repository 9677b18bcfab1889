"""Pass pipelines as text: `propagate-shardings,place{policy=pinned}`."""

import re
from dataclasses import fields
from typing import Any

from pathways.compiler.errors import UnknownPass
from pathways.compiler.passes.base import Pass
from pathways.compiler.pipeline import PASSES
from pathways.dialect.diagnostics import PathwaysError

_PASS = re.compile(r"\s*([\w-]+)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")


def parse_pipeline(text: str) -> list[Pass]:
    """Reads a pipeline. Raises PWC0705 for what is not one, with the known names."""
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _PASS.match(text, position)
        if match is None:
            raise _unknown("the pass pipeline cannot be read", text[position:])
        passes.append(_make(match[1], match[2] or ""))
        position = match.end()
    return passes


def _make(name: str, options: str) -> Pass:
    if name not in PASSES:
        raise _unknown("there is no such pass", name)
    known = {f.name: f.type for f in fields(PASSES[name])}
    values: dict[str, Any] = {}
    for option in options.split():
        key, equals, value = option.partition("=")
        key = key.replace("-", "_")
        if key not in known or not equals:
            raise _unknown(f"the pass {name} has no such option", option, tuple(known))
        values[key] = value == "true" if known[key] in (bool, "bool") else value
    return PASSES[name](**values)


def _unknown(problem: str, have: str, known: tuple[str, ...] = tuple(PASSES)) -> PathwaysError:
    return PathwaysError(UnknownPass(problem=problem, have_=have, known=", ".join(known) or "no options"))
