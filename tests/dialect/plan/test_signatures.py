"""Compiled programs and loaded plans take the arguments of their function, by position and name, except static ones."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.binding import CallSignature
from pathways.api.stages import Compiled
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.plan.signature import (
    Parameter,
    arguments_in_order,
    parameter_problem,
    read_parameters,
    shown,
    write_parameters,
)

mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("d")
f = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P("d")))
X = np.arange(4, dtype=np.float32)
TWO, THREE = np.float32(2), np.float32(3)


def compiled_and_loaded(program: pw.Program, folder: Path, *args: Any, **kwargs: Any) -> list[Compiled]:
    """Returns the compiled program, and the same program loaded from a file."""
    compiled = program.lower(*args, **kwargs).compile()
    compiled.save(folder / "plan.bin")
    return [compiled, pw.load(folder / "plan.bin")]


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(pw.PathwaysError) as caught:
        call()
    assert caught.value.code == "PWC0502"
    error = caught.value.diagnostic
    assert error.where is not None and error.where.file == __file__
    return f"{error.text(error.have)}; {error.text(error.need)}"


def test_arguments_are_taken_by_position_and_by_name(tmp_path: Path) -> None:
    @pw.program
    def scaled(x: Any, scale: Any) -> Any:
        return f(x) * scale

    for compiled in compiled_and_loaded(scaled, tmp_path, X, scale=TWO):
        for made in (compiled(X, THREE), compiled(X, scale=THREE), compiled(scale=THREE, x=X), compiled(X, scale=3.0)):
            assert np.allclose(made, (X + 1) * 3)
        assert "scale missing; scaled(x, scale)" in refused(lambda c=compiled: c(X))
        assert "scale is passed twice" in refused(lambda c=compiled: c(X, TWO, scale=TWO))
        assert "size is passed, which is not an argument" in refused(lambda c=compiled: c(X, size=TWO))
        assert "3 positional arguments" in refused(lambda c=compiled: c(X, TWO, TWO))


def test_all_kinds_of_parameters_are_taken(tmp_path: Path) -> None:
    @pw.program
    def mixed(x: Any, /, y: Any, *rest: Any, scale: Any, **more: Any) -> Any:
        return f(x) * scale + y + sum(rest) + more["x"]

    expected = (X + 1) * 2 + 1 + 10 + 20 + 7
    for compiled in compiled_and_loaded(mixed, tmp_path, X, X * 0, X, X, scale=TWO, x=X):
        made = compiled(X, np.ones_like(X), X * 0 + 10, X * 0 + 20, x=X * 0 + 7, scale=2)
        assert np.allclose(made, expected)
        assert "*, scale, x" in refused(lambda c=compiled: c(X, X, X, X, TWO, X))


def test_a_keyword_only_argument_is_not_taken_by_position(tmp_path: Path) -> None:
    scaled = pw.program(lambda x, *, scale: f(x) * scale)
    for compiled in compiled_and_loaded(scaled, tmp_path, X, scale=TWO):
        assert np.allclose(compiled(X, scale=THREE), (X + 1) * 3)
        assert "lambda(x, *, scale)" in refused(lambda c=compiled: c(X, THREE))


def test_an_argument_after_an_omitted_default_is_taken_by_name_only(tmp_path: Path) -> None:
    @pw.program
    def step(x: Any, shift: Any = 1.0, scale: Any = 2.0) -> Any:
        return (f(x) + shift) * scale

    for compiled in compiled_and_loaded(step, tmp_path, X, scale=THREE):
        assert np.allclose(compiled(X, scale=TWO), (X + 2) * 2)
        assert "step(x, *, scale)" in refused(lambda c=compiled: c(X, TWO))
        assert "shift is passed, which is not an argument" in refused(lambda c=compiled: c(X, shift=TWO))


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "n"}, {"static_argnums": -1}])
def test_static_arguments_are_omitted_from_compiled_calls(options: dict[str, Any], tmp_path: Path) -> None:
    def repeated(x: Any, n: int) -> Any:
        return f(x) * n

    program = pw.program(repeated, **options)
    for lowered in (program.lower(X, 3), program.lower(X, n=3)):
        assert np.allclose(lowered.compile()(X), (X + 1) * 3)
    assert np.allclose(program(X, 4), program(X, n=4))
    for compiled in compiled_and_loaded(program, tmp_path, X, 3):
        assert np.allclose(compiled(x=X), (X + 1) * 3)
        assert "repeated(x), n=3 compiled in" in refused(lambda c=compiled: c(X, 3))
        assert "n is passed, but its value was compiled in" in refused(lambda c=compiled: c(X, n=3))


def test_static_argnames_and_donate_argnames_work_as_in_jax() -> None:
    def step(x: Any, y: Any, *, kind: str = "sum", **more: Any) -> Any:
        return on(x) + y if kind == "sum" else on(x) * y * more["factor"]

    on: Any = jax.jit(lambda x: x + 1)
    options: dict[str, Any] = {"static_argnames": ("kind", "factor"), "donate_argnames": ["y"]}
    plain = jax.jit(step, static_argnames=("kind", "factor"))
    expected = [plain(X, X + 1, kind="product", factor=3), plain(X, y=X)]
    on = f
    program = pw.program(step, **options)
    given = pw.program(lambda x: f(x))(X)
    assert np.allclose(program(X, given, kind="product", factor=3), expected[0])
    with pytest.raises(pw.PathwaysError, match="PWC0207"):
        np.asarray(given)
    assert np.allclose(program(X, y=X), expected[1])
    wrong: tuple[dict[str, Any], ...] = (
        {"static_argnames": "kin"},
        {"donate_argnames": ("x", "z")},
        {"static_argnames": "x", "donate_argnums": 0},
        {"static_argnums": 5},
    )
    for options in wrong:
        with pytest.raises(pw.PathwaysError, match="PWC0104"):
            pw.program(lambda x, y: x, **options)


def test_a_name_of_a_keyword_is_no_position_of_the_rest() -> None:
    def rest(*xs: Any, y: Any) -> Any:
        return xs[0] + xs[1] + y

    donated = [pw.program(lambda x: f(x))(X) for _ in range(3)]
    a, b, y = donated
    pw.program(rest, donate_argnames="y")(a, b, y=y)
    assert [v.is_deleted() for v in (a, b, y)] == [False, False, True]
    repeated = pw.program(lambda *xs, n: (f(xs[0]) + xs[1]) * n, static_argnames="n")
    assert np.allclose(repeated(X, X, n=3), (2 * X + 1) * 3)


def test_options_of_a_wrapping_function_count_as_for_jit() -> None:
    """Values given by position are found by number, and those given by keyword by name."""

    def inner(x: Any) -> Any:
        return f(x)

    @functools.wraps(inner)
    def outer(ctx: Any, x: Any) -> Any:
        return inner(x) + ctx

    ctx, x = (pw.program(lambda x: f(x))(X) for _ in range(2))
    pw.program(outer, donate_argnames="x")(ctx, x)
    assert ctx.is_deleted() and not x.is_deleted()


def test_methods_take_static_argnames_and_donate_argnames() -> None:
    class Model:
        @pw.program(static_argnums=0, static_argnames="n", donate_argnames="y")
        def run(self, x: Any, y: Any, n: int) -> Any:
            return f(x) * n + y

    given = pw.program(lambda x: f(x))(X)
    assert np.allclose(Model().run(X, given, n=2), (X + 1) * 3)
    with pytest.raises(pw.PathwaysError, match="PWC0207"):
        np.asarray(given)


def test_static_values_are_shown_without_addresses() -> None:
    shown_values = {3: "3", "adam": "'adam'", None: "None", object(): "<object>", "x" * 99: f"'{'x' * 36}..."}
    for value, expected in shown_values.items():
        signature = CallSignature(lambda x, mode: x)
        signature.static = signature.choose(1, ())
        bound, _ = signature.bind((X, value), {})
        assert bound.parameters[1].static == expected


def test_a_plan_of_an_older_writer_takes_arguments_by_position(tmp_path: Path) -> None:
    compiled = pw.program(lambda x, scale: f(x) * scale).lower(X, TWO).compile()
    older = tmp_path / "older.bin"
    older.write_bytes(write_plan(replace(compiled.plan, parameters=())))
    loaded = pw.load(older)
    assert np.allclose(loaded(X, THREE), (X + 1) * 3)
    assert "by position: the plan is of an older version" in refused(lambda: loaded(X, scale=THREE))
    assert "PyTreeDef" in refused(lambda: loaded(X))
    nothing = pw.program(lambda: f(X)).lower().compile()
    assert np.allclose(nothing(), X + 1)
    assert "x is passed, which is not an argument; lambda()" in refused(lambda: nothing(x=X))


def hostile(plan: Plan) -> dict[str, tuple[Parameter, ...]]:
    x, scale = plan.parameters
    return {
        "too few": (x,),
        "too many": (x, scale, Parameter("y", "either")),
        "one is static": (x, replace(scale, static="2")),
        "no such way": (x, replace(scale, how="telepathy")),
        "two of one name": (x, replace(scale, name="x")),
    }


def test_parameters_that_do_not_match_the_arguments_are_refused() -> None:
    plan = pw.program(lambda x, scale: f(x) * scale).lower(X, TWO).compile().plan
    assert read_plan(write_plan(plan)) == plan
    for name, parameters in hostile(plan).items():
        with pytest.raises(pw.PathwaysError, match="PWC0604"):
            validate(read_plan(write_plan(replace(plan, parameters=parameters))), name)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["x"]]', '[["x", 1, ""]]', "null", '[["x","either","",""]]'])
def test_malformed_parameters_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_parameters(text)


KINDS = [
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
]


@st.composite
def signatures(draw: st.DrawFn) -> inspect.Signature:
    """Draws a signature with parameters of all kinds, with and without defaults."""
    counts = draw(st.tuples(*[st.integers(0, most) for most in (2, 3, 1, 2, 1)]))
    parameters: list[inspect.Parameter] = []
    default: Any = inspect.Parameter.empty
    for kind, count in zip(KINDS, counts, strict=True):
        for i in range(count):
            star = kind in (KINDS[2], KINDS[4])
            keyword = kind is KINDS[3]
            chosen = inspect.Parameter.empty if star else (0 if draw(st.booleans()) else default)
            if not keyword and not star:
                default = chosen
            parameters.append(inspect.Parameter(f"p{len(parameters)}_{i}", kind, default=chosen))
    return inspect.Signature(parameters)


@st.composite
def calls(draw: st.DrawFn) -> tuple[inspect.Signature, tuple[Any, ...], dict[str, Any]]:
    signature = draw(signatures())
    args = tuple(range(draw(st.integers(0, 6))))
    names = [*signature.parameters, "other"]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    return signature, args, {name: 100 + i for i, name in enumerate(chosen)}


def bound_or_none(signature: inspect.Signature, args: Any, kwargs: Any) -> inspect.BoundArguments | None:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError:
        return None


@settings(max_examples=400)
@given(calls(), calls(), st.sets(st.integers(0, 8)))
def test_a_compiled_call_takes_exactly_what_python_binds_equally(
    compiled: tuple[inspect.Signature, tuple[Any, ...], dict[str, Any]],
    called: tuple[inspect.Signature, tuple[Any, ...], dict[str, Any]],
    static: set[int],
) -> None:
    """Without static arguments, a call is taken if and only if Python binds it to the same parameters."""
    python, args, kwargs = compiled
    if bound_or_none(python, args, kwargs) is None:
        return

    class Function:
        __signature__ = python

        def __call__(self, *args: Any, **kwargs: Any) -> None: ...

    signature = CallSignature(Function())
    bound, dynamic = signature.bind(args, kwargs)
    assert arguments_in_order(bound.parameters, args, kwargs) == dynamic
    assert parameter_problem(bound.parameters, len(dynamic)) is None
    assert read_parameters(write_parameters(bound.parameters)) == bound.parameters
    assert shown("f", bound.parameters).startswith("f(")
    _, others, names = called
    again = bound_or_none(python, others, names)
    expected = None if again is None else signature.bind(others, names)
    places = list(zip(bound.given, bound.names, strict=True))
    others_places = [] if expected is None else list(zip(expected[0].given, expected[0].names, strict=True))
    fits = expected is not None and set(others_places) == set(places)
    try:
        found = arguments_in_order(bound.parameters, others, names)
    except TypeError:
        assert not fits
        return
    assert expected is not None and fits
    given_there = dict(zip(others_places, expected[1], strict=True))
    assert found == tuple(given_there[place] for place in places)
    chosen = signature.choose(tuple(n for n in static if n < len(python.parameters)), ())
    signature.static = chosen
    frozen, rest = signature.bind(args, kwargs)
    assert len(rest) == sum(not p.static for p in frozen.parameters)
