"""Tests that code with host callbacks is freed when no plan uses it, but never while a callback runs."""

import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from support.clusters import becomes

import pathways as pw
from pathways.api.process import process
from pathways.runtime.host.devices.callbacks import CallbackRecord

X = np.arange(4, dtype=np.float32)
pytestmark = pytest.mark.embedded


def calling(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2


def fails(x: Any) -> Any:
    raise ValueError("on purpose")


def read_failed(x: Any) -> None:
    with pytest.raises(pw.PathwaysError, match="on purpose"):
        np.asarray(x)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns off JAX's log of callbacks that raise: a record of it would keep all frames."""
    monkeypatch.setattr(logging.getLogger("jax._src.callback"), "disabled", True)


def kept(free_first: bool = True) -> int:
    """Returns how many executables with callbacks this process keeps after the next program is loaded."""
    executables = process().controller.executables
    if free_first:
        gc.collect()
        executables.load_all({})
    return len(executables._calling)  # pyright: ignore[reportPrivateUsage]


def test_code_with_callbacks_is_freed_with_its_program() -> None:
    before = kept()
    for by in range(3):
        program = pw.program(calling(lambda x, by=by: np.asarray(x) + by))
        for _ in range(3):  # the first call, and direct ones
            np.testing.assert_array_equal(np.asarray(program(X)), (X + by) * 2)
        assert kept(free_first=False) > before
        program.lower(X).compile().cost_analysis()
        del program
    assert kept() == before


@pytest.mark.usefixtures("silent")
def test_code_whose_callback_raised_is_freed_too() -> None:
    before = kept()
    read_failed(pw.program(calling(fails))(X))
    assert becomes(lambda: kept() == before)


@pytest.mark.usefixtures("silent")
def test_code_that_never_started_is_freed_too() -> None:
    """Its argument is the result of a failed program."""
    before = kept()
    for _ in range(3):
        program = pw.program(calling(np.asarray))
        program(X)
        read_failed(program(pw.program(calling(fails))(X)))
        del program
    assert becomes(lambda: kept() == before)


def test_code_is_kept_while_its_callback_runs() -> None:
    before, begun, go_on = kept(), threading.Event(), threading.Event()

    def waits(x: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return np.asarray(x) + 1

    y = pw.program(calling(waits))(X)
    assert begun.wait(60)
    assert kept() == before + 1
    go_on.set()
    np.testing.assert_array_equal(np.asarray(y), (X + 1) * 2)
    del y
    assert becomes(lambda: kept() == before)  # the thread of the run may hold it for a moment


def test_the_end_of_an_earlier_launch_is_not_the_end_of_a_later_one() -> None:
    record = CallbackRecord()
    assert record.is_over
    first = record.begin()
    record.end(first)
    assert record.is_over
    second = record.begin()
    record.end(first)
    assert not record.is_over
    record.end(second)
    assert record.is_over
