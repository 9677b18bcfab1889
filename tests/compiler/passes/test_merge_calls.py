"""What is merged waits for nothing that it did not wait for: not for what other slices make meanwhile."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.instructions import Run

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
