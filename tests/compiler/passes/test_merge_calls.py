"""Tests that a merged call waits only for values that its parts waited for, and not for those of other slices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.computations.merge import count_operations
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.passes.merge_calls import LARGE, MergeCalls, find_groups
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name
from pathways.dialect.mlir import make_context, parse, text
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Run
from pathways.dialect.topology import parse_topology

jit: Any = jax.jit
X = np.ones((4, 8), np.float32)


class Slices:
    """Makes functions of any number of values, on one of two slices: `call("f", 0)(x, y)`."""

    def __init__(self) -> None:
        made = pw.make_virtual_device_set()
        self.homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]

    def call(self, name: str, slice_: int) -> Any:
        def function(*values: Any) -> Any:
            return jnp.tanh(sum(values))

        function.__name__ = name
        return jit(function, in_shardings=self.homes[slice_])


def runs(program: Any, *arguments: Any) -> list[list[str]]:
    """Returns the names of the runs of each island in order; the parts of a merged call are joined by +."""
    plan = pw.program(program).lower(*arguments).compile("islands=2,devices=1").plan
    return [[i.name for i in s.instructions if isinstance(i, Run)] for s in plan.streams]


def test_dependent_calls_of_one_slice_are_merged() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    assert runs(lambda x: h(g(f(x))), X) == [["f+g+h"]]


def test_a_call_that_reads_from_another_slice_starts_a_new_group() -> None:
    """If merged, `f` would wait for `k`, and so would everything that waits for `f`."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x, y: g(f(x), k(y)), X, X) == [["f", "g"], ["k"]]


def test_calls_around_a_round_trip_to_another_slice_are_not_merged() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: g(k(f(x))), X) == [["f", "g"], ["k"]]
    assert runs(lambda x: [g(y, k(y)) for y in [f(x)]], X) == [["f", "g"], ["k"]]


def test_calls_after_a_value_from_another_slice_are_merged() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: g(f(k(x))), X) == [["k"], ["f+g"]]


def test_calls_that_read_an_argument_of_another_slice_are_merged() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x, y: (k(y), g(f(x), y)), X, X)[0] in (["f+g"], ["k"])
    assert ["f+g"] in runs(lambda x, y: (k(y), g(f(x), y)), X, X)


def test_a_result_that_another_slice_needs_is_not_delayed_by_a_merge() -> None:
    """`k` needs the result of `f`, which `g` must not delay."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: [(g(y), k(y)) for y in [f(x)]], X) == [["f", "g"], ["k"]]


def test_a_call_that_takes_a_value_of_the_first_call_on_another_slice_starts_a_new_group() -> None:
    """The value is moved between the two calls that could be merged otherwise."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)

    def program(x: Any, y: Any) -> Any:
        moved = k(y)
        return g(f(x), moved)

    assert runs(program, X, X) == [["f", "g"], ["k"]]


@pytest.mark.parametrize(
    ("calls", "shown", "symbol"),
    [
        ("fg", "f+g", "f_g"),
        ("fffg", "f*3+g", "fx3_g"),
        ("fgf", "f+g+f", "f_g_f"),
        ("ffghe", "f*2+g+h+e", "fx2_g_h_e"),
        ("fgghhef", "f+g*2+h*2+e+...", "f_gx2_hx2_e_1_more"),
    ],
)
def test_a_merged_call_names_its_first_four_parts_and_how_often_each_runs(calls: str, shown: str, symbol: str) -> None:
    """Its computation has the same name, as a symbol."""
    home = Slices().homes[0]
    made: dict[str, Any] = {}
    for number, name in enumerate("fghe"):

        def function(x: Any, number: int = number) -> Any:
            return x + number

        function.__name__ = name
        made[name] = jit(function, in_shardings=home)

    def program(x: Any) -> Any:
        for name in calls:
            x = made[name](x)
        return x

    plan = pw.program(program).lower(X).compile("islands=2,devices=1").plan
    (run,) = plan.runs()
    assert run.name == shown and plan.computations[run.computation].name == symbol


def ordered(program: Any, *arguments: Any) -> ProgramIR:
    """Returns a program in its final order, without merged calls."""
    lowered = pw.program(program).lower(*arguments)
    compilation = Compilation(
        ProgramIR(lowered.module), lowered.constants, Session(parse_topology("islands=2,devices=1"))
    )
    compilation.advance(Phase.SCHEDULE, options=Options(merge=False))
    return compilation.program


def groups(program: ProgramIR, limit: int) -> list[list[str]]:
    return [[shown_name(node.op) for node in group] for group in find_groups(program, limit)]


def test_the_limit_bounds_the_parts_of_a_merged_call() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    program = ordered(lambda x: h(g(f(x))), X)
    assert groups(program, 2) == [["f", "g"]] and groups(program, 3) == [["f", "g", "h"]]


def test_each_part_of_an_already_merged_call_counts() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    program = ordered(lambda x: h(g(f(x))), X)
    next(program.calls()).parts = ("- a m.py:1", "- b m.py:2")
    assert groups(program, 3) == [["f", "g"]] and groups(program, 4) == [["f", "g", "h"]]


def computation_of_size(name: str, operations: int, slices: Slices) -> Any:
    """Returns a computation of this many operations, including its return."""

    def function(x: Any) -> Any:
        for _ in range(operations - 1):
            x = jnp.tanh(x)
        return x

    function.__name__ = name
    return jit(function, in_shardings=slices.homes[0])


def test_a_large_computation_is_not_merged_with_itself() -> None:
    s = Slices()
    for operations, merged in ((LARGE, [["f", "f"]]), (LARGE + 1, [])):
        f = computation_of_size("f", operations, s)
        program = ordered(lambda x, f=f: f(f(x)), X)
        assert count_operations(program.computations["f"]) == operations
        assert groups(program, 128) == merged


def test_a_large_computation_is_merged_with_the_call_that_mostly_follows() -> None:
    s = Slices()
    f = computation_of_size("f", LARGE + 1, s)
    g, h, k = (computation_of_size(n, i, s) for i, n in enumerate("ghk", 2))
    assert groups(ordered(lambda x: h(f(g(f(g(f(x)))))), X), 128) == [["f", "g"], ["f", "g"]]
    assert groups(ordered(lambda x: h(f(g(f(x)))), X), 128) == []  # half of the calls are not most
    assert groups(ordered(lambda x: k(f(h(f(g(f(x)))))), X), 128) == []


def test_a_call_that_reads_the_result_of_a_loop_starts_a_new_group() -> None:
    """The result of a loop exists when the loop completes; `f` must not wait for it."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)

    def program(x: Any, y: Any) -> Any:
        return g(f(x), lax.while_loop(lambda v: v.sum() < 10, lambda v: k(f(v)), y))

    found = ordered(program, X, X)
    assert list(found.flow.branches()) and groups(found, 128) == []


def test_a_program_that_no_other_pass_has_read_is_merged() -> None:
    """The types of the values are read before the ops that make them are erased."""
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    for _ in range(3):
        program = ordered(lambda x: h(g(f(x))), X)
        fresh = ProgramIR(parse(text(program.module), make_context()))
        MergeCalls().apply(fresh, Session(parse_topology("islands=2,devices=1")))
        assert len(list(fresh.calls())) == 1 and fresh.module.operation.verify()
