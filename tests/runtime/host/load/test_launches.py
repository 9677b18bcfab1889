"""Tests computations that are launched device by device: results, completion tokens and tracebacks."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.array import Array
from pathways.api.stages import Compiled
from pathways.runtime.host.devices.in_flight_limit import FEW, DeviceQueue, Gang, unfinished
from pathways.runtime.host.run.runs_in_flight import Flight, Line

DEVICES, LENGTH = 4, 64
X = np.arange(2.0 * DEVICES, dtype=np.float32)


@pytest.fixture(scope="module")
def chain() -> Compiled:
    """Compiles a chain of calls of one computation. The program also returns the first value of the chain."""
    mesh = pw.make_virtual_device_set().add_slice(devices=DEVICES).mesh("x")
    step = jax.jit(jax.shard_map(lambda x, y: (x + y, x), mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x")))
    start = jax.jit(jax.shard_map(lambda: jax.numpy.ones(2), mesh=mesh, in_specs=(), out_specs=P("x")))

    @pw.program
    def program(x: Any) -> Any:
        one = y = start()
        for _ in range(LENGTH):
            x, y = step(x, y)
        return x, y, one

    return program.lower(X).compile(merge=False)


def expected() -> list[Any]:
    x, y = X, np.ones_like(X)
    for _ in range(LENGTH):
        x, y = x + y, x
    return [x, y, np.ones_like(X)]


def test_launches_with_several_or_no_operands_give_the_right_results(chain: Compiled) -> None:
    for found, wanted in zip(chain(X), expected(), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.embedded
def test_a_long_run_leaves_few_tokens(chain: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    put = Line.put

    def watched(self: Line, flight: Flight, *, eager: bool) -> None:
        left.append(len(flight.tokens))
        put(self, flight, eager=eager)

    monkeypatch.setattr(Line, "put", watched)
    for _ in range(8):  # the first waits determine how many executions may share a token
        chain(X)
    assert DEVICES <= left[-1] <= FEW + 2 * DEVICES


@pytest.mark.embedded
def test_arrays_are_made_without_recording_the_callers_stack(chain: Compiled) -> None:
    result = chain(X)[0]
    assert isinstance(result, Array)
    array: Any = result.handle.known()
    assert __file__ not in str(array.traceback)
    assert __file__ in str(jax.numpy.zeros(3).traceback)  # arrays that JAX makes still record it


def test_only_tokens_of_possibly_unfinished_executions_are_kept() -> None:
    queues = [DeviceQueue(), DeviceQueue()]
    tokens = [object() for _ in range(FEW)]
    for queue in queues:
        gang = Gang([queue])
        gang.admit()
        gang.started((tokens[3], None))
    assert list(unfinished(tokens, queues)) == [tokens[3]]
    assert list(unfinished(tokens[1:], queues)) == tokens[1:]
    queues[0].done(queues[0].tokens[0], 0.0)
    assert list(unfinished(tokens, queues)) == [tokens[3]]
    queues[1].done(queues[1].tokens[0], 0.0)
    assert list(unfinished(tokens, queues)) == []
