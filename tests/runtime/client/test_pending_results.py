"""Tests results that are returned before their run is complete, because a callback of the run waits."""

import threading
from typing import Any

import jax
import numpy as np
import pytest

import pathways as pw
from pathways.api.process import process

X = np.arange(8, dtype=np.float32)


@pytest.mark.embedded  # a cluster knows also the results that are donated arguments at once
@pytest.mark.parametrize("donated", [(), 1], ids=["kept", "donated"])
def test_an_argument_that_is_returned_is_ready_at_once_unless_it_is_donated(donated: Any) -> None:
    go_on = threading.Event()

    def wait(v: Any) -> Any:
        go_on.wait(60)
        return np.asarray(v)

    def step(x: Any, y: Any) -> Any:
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x), y

    given = pw.program(lambda x: x + 1)(X).block_until_ready()
    try:
        late, same = pw.program(step, donate_argnums=donated)(X, given)
        assert not late.is_ready() and same.is_ready() == (donated == ())
    finally:
        go_on.set()
    np.testing.assert_array_equal(np.asarray(same), X + 1)
    np.testing.assert_array_equal(np.asarray(late), X)
    assert given.is_deleted() == (donated == 1)


@pytest.mark.embedded
def test_a_call_for_which_no_thread_can_be_started_completes_before_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards, a later call may overwrite its arguments without a copy."""
    works: list[Any] = []

    def refuse(promise: Any, work: Any) -> bool:
        works.append(work)
        return False

    program = pw.program(lambda x: jax.pure_callback(lambda v: v + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    given = pw.program(lambda x: x + 1)(X).block_until_ready()
    monkeypatch.setattr(process().controller.background, "start", refuse)
    result = program(given)
    assert result.is_ready() and len(works) == 1 and not given.handle.buffer.is_shared
    np.testing.assert_array_equal(np.asarray(result), X + 2)
