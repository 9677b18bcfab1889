"""Odd functions, arguments, nodes and methods under `pw.program` do as under `jax.jit`, or are refused with a code."""

import contextlib
import io
import logging
from collections.abc import Generator
from typing import Any, cast

import jax
import numpy as np
import pytest
from support.odd_calls import INPUTS, USES, cases
from support.odd_methods import CASES as CASES_OF_METHODS
from support.odd_methods import Case, Wrapper

import pathways as pw
from pathways.dialect.jax_api import dtypes

CASES = dict(cases())
REFUSED = {f"an ordered callback, of {what}": "PWC0102" for what in INPUTS}
"""Codes of the cases that `jax.jit` takes and `pw.program` refuses, by name."""
TAKEN = {f"big endian, {how}" for how in USES} | {"an item getter", "donated twice"}
"""Cases that `jax.jit` refuses, or computes wrong, and `pw.program` takes."""


class Outcome:
    """The result of a case, or its exception."""

    def __init__(self, case: Case, wrapper: Wrapper) -> None:
        self.values: list[Any] = []
        self.error: Exception | None = None
        self.structure = ""
        try:
            found = case(wrapper)
            self.structure = str(jax.tree.structure(found))
            self.values = [_value(leaf) for leaf in jax.tree.leaves(found)]
        except Exception as error:
            self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error)}: {self.error}" if self.error else f"{self.structure} {self.values}"


def _value(leaf: Any) -> Any:
    """Reads a leaf: its values, element type and weak type."""
    if not isinstance(leaf, jax.Array):
        return leaf
    data: Any = leaf
    if dtypes.issubdtype(leaf.dtype, dtypes.prng_key):
        data = jax.random.key_data(leaf)
    return str(leaf.dtype), bool(getattr(leaf, "weak_type", False)), np.asarray(data)


def same(one: Any, other: Any) -> bool:
    """Compares two leaves; floats may differ in the last bit."""
    if not isinstance(one, tuple):
        return one == other
    (dtype, weak, ours), (dtype_of_jit, weak_of_jit, jits) = cast("Any", (one, other))
    if (dtype, weak, ours.shape) != (dtype_of_jit, weak_of_jit, jits.shape):
        return False
    if ours.dtype.kind not in "fcV":
        return bool((ours == jits).all())
    return bool(np.allclose(ours.astype(complex), jits.astype(complex), rtol=1e-6, equal_nan=True))


def problem_of(ours: Outcome, jits: Outcome, refused: str | None, *, taken: bool) -> str | None:
    """Describes how the outcome of a program differs from that of a jit, where it must not."""
    if refused is not None:
        code = getattr(ours.error, "code", None)
        return None if code == refused and jits.error is None else f"is not refused by {refused}"
    if jits.error is None and not taken:
        alike = ours.error is None and ours.structure == jits.structure and len(ours.values) == len(jits.values)
        fine = alike and all(map(same, ours.values, jits.values))
        return None if fine else "another result"
    if ours.error is None:
        return None if taken else "jax.jit refuses it"
    if isinstance(ours.error, pw.PathwaysError) or type(ours.error) is type(jits.error):
        caught: Any = next((k for k in (TypeError, ValueError) if isinstance(jits.error, k)), Exception)
        return None if isinstance(ours.error, caught) else f"is no {caught.__name__}"
    return "an error without a code"


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Drops what callbacks that fail print."""
    logger = logging.getLogger("jax._src.callback")
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.long(
    "more odd calls of the same kind", keep=("*, returned", "*, closed over", "*, of float32", *CASES_OF_METHODS)
)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_program_does_as_jit_or_says_why_not(name: str) -> None:
    with quietly():
        jits, ours = Outcome(CASES[name], jax.jit), Outcome(CASES[name], pw.program)
    problem = problem_of(ours, jits, REFUSED.get(name), taken=name in TAKEN)
    assert problem is None, f"{problem}\n  jit     {jits}\n  program {ours}"


@pytest.mark.parametrize("name", ["donate_argnums", "donate_argnames", "static_argnums", "static_argnames"])
def test_none_as_an_option_means_no_argument(name: str) -> None:
    """It is the default of `jax.jit`, which libraries pass on."""
    options: dict[str, Any] = {name: None, "keep_unused": True, "inline": True, "device": None, "backend": None}
    program: Any = pw.program(lambda x, y: x * 2, **options, compiler_options=None)
    assert float(program(1.5, 0.0)) == 3.0
    assert float(program.lower(1.5, 0.0).compile(compiler_options=None)(1.5, 0.0)) == 3.0


@pytest.mark.parametrize("option", ["device", "backend", "compiler_options"])
def test_options_of_jit_that_programs_lack_are_refused(option: str) -> None:
    given: dict[str, Any] = {option: "cpu"}
    with pytest.raises(pw.PathwaysError, match=f"programs have no option {option}") as refused:
        pw.program(lambda x: x * 2, **given)
    assert refused.value.code == "PWC0104" and isinstance(refused.value, TypeError)


def test_options_for_xla_at_compilation_are_refused() -> None:
    lowered: Any = pw.program(lambda x: x * 2).lower(1.5)
    with pytest.raises(pw.PathwaysError, match="programs have no option compiler_options") as refused:
        lowered.compile(compiler_options={"xla_cpu_enable_fast_math": True})
    assert refused.value.code == "PWC0104"
