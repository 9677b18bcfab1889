"""Tests the table of rules: every primitive of JAX has one rule, or is known to have none."""

import jax.extend.core.primitives as jax_primitives

from pathways.compiler.frontends.jax.pipeline.mixing.rules import CALLS, MODULES, RULES, UNDECIDABLE

NEEDS_NO_RULE = {"iota", "axis_index"}
"""Primitives without operands: they make constants."""


def primitives() -> set[str]:
    """The names of all primitives that this version of JAX makes public."""
    return {getattr(jax_primitives, name).name for name in dir(jax_primitives) if name.endswith("_p")}


def test_every_primitive_has_a_rule_or_cannot_be_told() -> None:
    known = {*RULES, *CALLS, *UNDECIDABLE, *NEEDS_NO_RULE}
    assert len(primitives()) > 150 and primitives() <= known, sorted(primitives() - known)


def test_each_primitive_has_one_rule() -> None:
    names = [name for module in MODULES for name in module.RULES]
    assert len(names) == len(set(names)) == len(RULES)
    assert not {*RULES} & UNDECIDABLE and not {*RULES} & {*CALLS} and not UNDECIDABLE & {*CALLS}
