"""Inputs that take their time on the way to devices are reported while they are sent; others cost nothing."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pathways as pw
from pathways.dialect.activities import BYTES, under_way
from pathways.runtime.client import arguments
from pathways.runtime.client.ports import Input

SIZE = 4096
"""Bytes of each input."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What is said to be under way whenever an input is put on its devices."""
    found: list[tuple[str, int, int]] = []
    put: Callable[..., Any] = Input.put

    def look(self: Input, array: Any) -> Any:
        found.extend((a.name, a.done, a.total) for a in under_way() if a.unit == BYTES)
        return put(self, array)

    monkeypatch.setattr(Input, "put", look)
    return found


def compiled() -> Any:
    devices = pw.make_virtual_device_set().add_slice(tpu_devices=1).tpus
    add = jax.pmap(lambda x, y: x + y, devices=devices)
    array = np.ones((1, SIZE // 4), np.float32)
    return pw.program(lambda x, y: add(x, y)).lower(array, array).compile(), array


def test_large_inputs_are_counted_in_bytes(seen: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "LARGE", 2 * SIZE)
    program, array = compiled()
    result = program(array, array)
    name = seen[0][0]
    assert name.startswith("sending inputs of ") and seen == [(name, 0, 2 * SIZE), (name, SIZE, 2 * SIZE)]
    np.testing.assert_array_equal(program(result, array), array * 3)  # one of them is on its devices: less than that
    assert len(seen) == 2 and [a for a in under_way() if a.unit == BYTES] == []


def test_small_inputs_are_not_reported(seen: list[tuple[str, int, int]]) -> None:
    program, array = compiled()
    np.testing.assert_array_equal(program(array, array), array * 2)
    assert seen == []
