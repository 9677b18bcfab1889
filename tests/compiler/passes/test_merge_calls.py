"""What is merged waits for nothing that it did not wait for: not for what other slices make meanwhile."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.computations.merge import count_operations
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.passes.merge_calls import LARGE, find_groups
from pathways.dialect.ir import pw as pw_ops
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Run
from pathways.dialect.topology import parse_topology

jit: Any = jax.jit
X = np.ones((4, 8), np.float32)


class Slices:
    """Functions of any number of values, on one of two slices: `call("f", 0)(x, y)`."""

    def __init__(self) -> None:
        made = pw.make_virtual_device_set()
        self.homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]

    def call(self, name: str, slice_: int) -> Any:
        def function(*values: Any) -> Any:
            return jnp.tanh(sum(values))

        function.__name__ = name
        return jit(function, in_shardings=self.homes[slice_])


def runs(program: Any, *arguments: Any) -> list[list[str]]:
    """The names of what runs on each island, in order; a merged call's with + between them."""
    plan = pw.program(program).lower(*arguments).compile("islands=2,devices=1").plan
    return [[i.name for i in s.instructions if isinstance(i, Run)] for s in plan.streams]


def test_calls_of_one_slice_that_take_from_each_other_are_one() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    assert runs(lambda x: h(g(f(x))), X) == [["f+g+h"]]


def test_a_call_that_takes_from_another_slice_is_not_merged_with_what_comes_before() -> None:
    """`f` would wait for `k`, and everything that waits for `f` with it."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x, y: g(f(x), k(y)), X, X) == [["f", "g"], ["k"]]


def test_a_value_that_went_to_another_slice_and_came_back_is_waited_for() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: g(k(f(x))), X) == [["f", "g"], ["k"]]
    assert runs(lambda x: [g(y, k(y)) for y in [f(x)]], X) == [["f", "g"], ["k"]]


def test_what_another_slice_made_before_is_no_reason_not_to_merge_behind_it() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: g(f(k(x))), X) == [["k"], ["f+g"]]


def test_an_argument_on_its_way_is_there_from_the_start() -> None:
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x, y: (k(y), g(f(x), y)), X, X)[0] in (["f+g"], ["k"])
    assert ["f+g"] in runs(lambda x, y: (k(y), g(f(x), y)), X, X)


def test_what_others_wait_for_is_sent_before_the_next_call_runs() -> None:
    """`k` wants what `f` makes: `f` is not held up by `g`."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)
    assert runs(lambda x: [(g(y), k(y)) for y in [f(x)]], X) == [["f", "g"], ["k"]]


def ordered(program: Any, *arguments: Any) -> ProgramIR:
    """A program in its final order, nothing of which is merged."""
    lowered = pw.program(program).lower(*arguments)
    compilation = Compilation(
        ProgramIR(lowered.module), lowered.constants, Session(parse_topology("islands=2,devices=1"))
    )
    compilation.advance(Phase.SCHEDULE, options=Options(merge=False))
    return compilation.program


def groups(program: ProgramIR, limit: int) -> list[list[str]]:
    return [[pw_ops.shown_name(node.op) for node in group] for group in find_groups(program, limit)]


def test_a_merged_call_has_as_many_parts_as_the_limit_says() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    program = ordered(lambda x: h(g(f(x))), X)
    assert groups(program, 2) == [["f", "g"]] and groups(program, 3) == [["f", "g", "h"]]


def test_parts_of_what_was_merged_before_count_each() -> None:
    s = Slices()
    f, g, h = (s.call(n, 0) for n in "fgh")
    program = ordered(lambda x: h(g(f(x))), X)
    next(program.calls()).parts = ("- a m.py:1", "- b m.py:2")
    assert groups(program, 3) == [["f", "g"]] and groups(program, 4) == [["f", "g", "h"]]


def long(name: str, operations: int, slices: Slices) -> Any:
    """A computation of so many operations, its return among them."""

    def function(x: Any) -> Any:
        for _ in range(operations - 1):
            x = jnp.tanh(x)
        return x

    function.__name__ = name
    return jit(function, in_shardings=slices.homes[0])


def test_a_large_computation_is_not_repeated_inside_of_one_executable() -> None:
    s = Slices()
    for operations, merged in ((LARGE, [["f", "f"]]), (LARGE + 1, [])):
        f = long("f", operations, s)
        program = ordered(lambda x, f=f: f(f(x)), X)
        assert count_operations(program.computations["f"]) == operations
        assert groups(program, 128) == merged


def test_a_large_computation_is_merged_with_what_follows_most_of_its_calls() -> None:
    s = Slices()
    f = long("f", LARGE + 1, s)
    g, h, k = (long(n, i, s) for i, n in enumerate("ghk", 2))
    assert groups(ordered(lambda x: h(f(g(f(g(f(x)))))), X), 128) == [["f", "g"], ["f", "g"]]
    assert groups(ordered(lambda x: h(f(g(f(x)))), X), 128) == []  # half of them are not most
    assert groups(ordered(lambda x: k(f(h(f(g(f(x)))))), X), 128) == []


def test_what_control_flow_makes_is_waited_for() -> None:
    """What a loop makes of an argument is there when the loop has ended: `f` does not wait for that."""
    s = Slices()
    f, g, k = s.call("f", 0), s.call("g", 0), s.call("k", 1)

    def program(x: Any, y: Any) -> Any:
        return g(f(x), lax.while_loop(lambda v: v.sum() < 10, lambda v: k(f(v)), y))

    found = ordered(program, X, X)
    assert list(found.flow.branches()) and groups(found, 128) == []
