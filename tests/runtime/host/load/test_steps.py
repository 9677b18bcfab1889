"""Tests the slots that the steps of a plan fill and empty."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.instructions import Free, Send
from pathways.runtime.host.run.frame import Frame

jit: Any = jax.jit


@pytest.mark.embedded
def test_a_send_empties_the_slot_that_nothing_reads_after_it() -> None:
    made = pw.make_virtual_device_set()
    first, second = (
        jit(lambda x: x + 1, in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P())) for _ in range(2)
    )
    compiled = pw.program(lambda x: second(first(x))).lower(np.ones(4, np.float32)).compile()
    engine: Any = compiled._loaded._engine  # pyright: ignore[reportPrivateUsage]
    steps = [step for wave in engine._waves for part in wave.parts for step in part.steps]
    (send,) = [step for step in steps if isinstance(step.instruction, Send)]
    assert not any(isinstance(step.instruction, Free) for step in steps[steps.index(send) :])
    frame = Frame(engine.size, ())
    (source,) = send.emptied
    frame.values[source] = "value"
    send.enqueue(frame)
    assert frame.values[source] is None and frame.values.count("value") == 1
