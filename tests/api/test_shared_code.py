"""Tests that programs of one function share compiled code, as with `jax.jit`, and that both are freed together."""

import functools
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathways as pw
from pathways.api.process import Process, inside_of, process

X = np.arange(4, dtype=np.float32)


def results_of(wrap: Callable[[Any], Any], function: Any, *arguments: Any) -> list[Any]:
    """Calls a new wrapper of the same function for each argument; returns the results."""
    return [np.asarray(wrap(function)(argument)) for argument in arguments]


def counting(traces: list[str]) -> Callable[..., Any]:
    def f(x: Any, by: int = 1, y: Any = 0.0) -> Any:
        traces.append("f")
        return x * by + y

    return f


@pytest.mark.parametrize(
    ("wrap", "options", "want"),
    [
        (pw.program, [{}, {}, {"static_argnums": ()}], 1),
        (jax.jit, [{}, {}, {"static_argnums": ()}], 1),
        (pw.program, [{}, {"static_argnums": 1}, {"static_argnums": 1}, {"static_argnames": "by"}], 2),
        (jax.jit, [{}, {"static_argnums": 1}, {"static_argnums": 1}, {"static_argnames": "by"}], 2),
        (pw.program, [{"donate_argnums": 0}, {}, {"donate_argnums": (0,)}], 2),
    ],
    ids=["program-equal", "jit-equal", "program-static", "jit-static", "program-donated"],
)
def test_programs_of_one_function_share_code_if_their_options_are_equal(
    wrap: Any, options: list[dict[str, Any]], want: int
) -> None:
    traces = list[str]()
    f = counting(traces)
    for option in options:
        np.testing.assert_array_equal(np.asarray(wrap(f, **option)(jnp.asarray(X), by=2)), X * 2)
    assert len(traces) == want


def test_another_type_or_static_value_is_compiled_once_by_the_first_program_that_needs_it() -> None:
    traces = list[str]()
    f = counting(traces)
    results_of(pw.program, f, X, X[:2], X, X[:2], X.astype(np.int32))
    assert len(traces) == 3
    for by in (1, 2, 1, 2):
        pw.program(f, static_argnums=1)(X, by)
    assert len(traces) == 5


def test_what_wraps_copies_from_a_function_is_not_its_code() -> None:
    traces = list[str]()
    f = counting(traces)
    pw.program(f)(X)

    @functools.wraps(f)
    def other(*arguments: Any) -> Any:
        traces.append("other")
        return f(*arguments) + 100

    assert results_of(pw.program, other, X, X)[1].tolist() == (X + 100).tolist()
    assert results_of(pw.program, f, X, X)[1].tolist() == X.tolist()
    assert traces == ["f", "other", "f"]


def test_a_function_is_pickled_without_its_code() -> None:
    f = counting([])
    pw.program(f)(X)
    copied = pickle.loads(pickle.dumps(f.__dict__))
    assert all(value == {} for value in copied.values())
    twin = counting([])
    twin.__dict__.update(copied)
    np.testing.assert_array_equal(np.asarray(pw.program(twin)(X)), X)


def test_code_is_freed_together_with_the_function() -> None:
    f = counting([])
    program = pw.program(f)
    program(X)
    of_values = weakref.ref(program)
    function = weakref.ref(f)
    compiled = weakref.ref(program.lower(X).compile())
    del f, program
    gc.collect()
    assert [of_values(), function(), compiled()] == [None, None, None]


def test_clear_cache_drops_the_code_of_all_programs_of_a_function() -> None:
    traces = list[str]()
    f = counting(traces)
    one, two = pw.program(f), pw.program(f)
    for each in (one, two):
        each(X)
    one.clear_cache()
    assert "signatures compiled: 0" in repr(two)
    for each in (two, one, two):
        each(X)
    results_of(pw.program, f, X, X)
    assert len(traces) == 2


def test_code_for_a_machine_that_is_left_is_dropped() -> None:
    f = counting([])
    programs = [pw.program(f), pw.program(f)]
    outer = process()
    programs[0](X)
    for _ in range(3):
        with inside_of(Process(outer.platform, outer.controller)):
            programs[1](X)
            assert "signatures compiled: 2" in repr(programs[0])
    programs[0](X)
    assert "signatures compiled: 2" in repr(programs[0])


def test_objects_that_can_be_called_and_are_equal_share_nothing() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Scale)

        def __hash__(self) -> int:
            return 0

    found = [np.asarray(pw.program(Scale(by))(X)).tolist() for by in (1.0, 3.0)]
    assert found == [X.tolist(), (X * 3).tolist()]
    bound = [np.asarray(pw.program(Scale(by).__call__)(X)).tolist() for by in (1.0, 3.0)]
    assert bound == found


def test_new_programs_of_one_function_in_threads_compile_it_once() -> None:
    traces, start = list[str](), threading.Barrier(4)
    f, found = counting(traces), list[Any]()

    def work() -> None:
        start.wait(60)
        found.append(np.asarray(pw.program(f)(X)).tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [X.tolist()] * 4 and len(traces) == 1


def test_new_programs_of_one_function_update_mutable_arrays() -> None:
    traces = list[str]()

    def step(ref: Any) -> Any:
        traces.append("step")
        ref[...] = ref[...] + 1
        return ref[...]

    ref = jax.new_ref(jnp.zeros(3))
    for _ in range(3):
        pw.program(step)(ref)
    assert ref[...].tolist() == [3.0] * 3
    assert len(traces) == 1
