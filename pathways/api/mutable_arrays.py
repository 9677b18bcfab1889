"""Supports programs whose arguments are mutable arrays (`jax.new_ref`). The program receives their values and returns
the new ones, which the call writes back. `program.py` uses it.

This happens before the call returns, so that a later call or read sees the new values.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.jax_api import new_ref, tree_util
from pathways.dialect.user_line import caller


def refs_among(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Returns the positions of mutable arrays."""
    return tuple(i for i, leaf in enumerate(leaves) if compat.is_ref(leaf))


def on_values(function: Callable[..., Any], tree: Any, refs: Sequence[int]) -> Callable[..., Any]:
    """Wraps `function` as a function of flat arguments, with values in place of the references at positions `refs`.

    It returns the result of `function` and the final value of each reference.
    """

    def of_values(*leaves: Any) -> tuple[Any, list[Any]]:
        taken = list(leaves)
        for i in refs:
            taken[i] = new_ref(leaves[i])
        out = function(*tree_util.tree_unflatten(tree, taken))
        return out, [taken[i][...] for i in refs]

    return of_values


def call_with_refs(program: Callable[..., Any], leaves: Sequence[Any], refs: Sequence[int], name: str) -> Any:
    """Calls a program made by `on_values`, and writes values back. Raises PWC0104 if a reference is passed twice."""
    if len({id(leaves[i]) for i in refs}) < len(refs):
        have, rule = "a mutable array twice", "each mutable array once"
        advice = "pass it once, or pass its value, ref[...]"
        error = BadArguments(
            problem=f"arguments of {name} share memory", have_=have, rule=rule, advice=advice, where=caller()
        )
        raise PathwaysError(error)
    out, values = program(*(leaf[...] if i in refs else leaf for i, leaf in enumerate(leaves)))
    for i, value in zip(refs, values, strict=True):
        leaves[i][...] = value.to_jax()
    return out
