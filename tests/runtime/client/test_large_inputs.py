"""Large inputs are reported as an activity while they are sent to devices; small inputs are not reported."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pathways as pw
from pathways.dialect.activities import BYTES, under_way
from pathways.runtime.client import arguments
from pathways.runtime.client.remote.remote_engine import RemoteEngine
from pathways.runtime.host.load.local_engine import LocalEngine

INPUT_BYTES = 4096
"""Size of each input."""


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Records the reported activities at each moment in which an input is put on its devices."""
    found: list[tuple[str, int, int]] = []

    def recording(prepare: Callable[..., Callable[[Any], Any]]) -> Callable[..., Callable[[Any], Any]]:
        def prepared(*of: Any) -> Callable[[Any], Any]:
            put = prepare(*of)

            def recorded(array: Any) -> Any:
                found.extend((a.name, a.done, a.total) for a in under_way() if a.unit == BYTES)
                return put(array)

            return recorded

        return prepared

    for engine in (LocalEngine, RemoteEngine):
        monkeypatch.setattr(engine, "prepare_put", recording(engine.prepare_put))
    return found


def compiled() -> Any:
    devices = pw.make_virtual_device_set().add_slice(tpu_devices=1).tpus
    add = jax.pmap(lambda x, y: x + y, devices=devices)
    array = np.ones((1, INPUT_BYTES // 4), np.float32)
    return pw.program(lambda x, y: add(x, y)).lower(array, array).compile(), array


def test_large_inputs_are_counted_in_bytes(
    reported: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "LARGE_ARGUMENT_BYTES", 2 * INPUT_BYTES)
    program, array = compiled()
    result = program(array, array)
    name = reported[0][0]
    assert name.startswith("sending inputs of ") and reported == [
        (name, 0, 2 * INPUT_BYTES),
        (name, INPUT_BYTES, 2 * INPUT_BYTES),
    ]
    # one input is on its devices already: too little to report
    np.testing.assert_array_equal(program(result, array), array * 3)
    assert len(reported) == 2 and [a for a in under_way() if a.unit == BYTES] == []


def test_small_inputs_are_not_reported(reported: list[tuple[str, int, int]]) -> None:
    program, array = compiled()
    np.testing.assert_array_equal(program(array, array), array * 2)
    assert reported == []
