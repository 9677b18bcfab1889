"""Tests how long the values of a `pw.Array` live: copies, donated and deleted arrays, and the limit of a fetch."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.sample_arrays import FLOATS, JF, KEY, SLICE, X, assert_same, code_of_use, on_two, step

import pathways as pw
from pathways.api.process import process

jit: Any = jax.jit
random: Any = jax.random


def test_pickles_load_as_jax_arrays_and_copies_share_the_buffer() -> None:
    assert_same(pickle.loads(pickle.dumps({"w": FLOATS, "k": KEY})), {"w": JF, "k": random.key(0)})
    weak: Any = pw.program(lambda v: v + 1)(1.5)
    assert_same(pickle.loads(pickle.dumps(weak)), jnp.asarray(2.5))
    buffers = len(process().store.buffers)
    copies = [copy.copy(FLOATS), copy.deepcopy({"w": FLOATS})["w"], FLOATS.copy()]
    assert len(process().store.buffers) == buffers
    for one in copies:
        assert isinstance(one, pw.Array) and one.sharding == FLOATS.sharding
        np.testing.assert_array_equal(np.asarray(one), X + 1)


def test_a_copy_stays_usable_when_other_copies_are_donated_or_deleted() -> None:
    eat: Any = pw.program(lambda x: on_two(x), donate_argnums=0)
    first = step(X)[0]
    second, third = first.copy(), copy.deepcopy(first)
    np.testing.assert_array_equal(np.asarray(eat(first)), X + 2)
    second.delete()
    np.testing.assert_array_equal(np.asarray(third), X + 1)
    assert first.is_deleted() and second.is_deleted() and not third.is_deleted()


def test_using_a_donated_or_deleted_array_raises_a_coded_error() -> None:
    eat: Any = pw.program(lambda x: on_two(x), donate_argnums=0)
    donated, deleted = step(X)[0], step(X)[0]
    eat(donated)
    deleted.delete()
    deleted.delete()
    uses: tuple[Callable[[Any], Any], ...] = (
        *(np.asarray, jnp.sum, lambda x: x + 1, lambda x: x[0], list, lambda x: x.T, lambda x: x.mean(), pickle.dumps),
        *(copy.deepcopy, jax.device_put, jit(lambda a: a), jax.device_get, np.from_dlpack, eat),
        *(lambda x: x.addressable_shards, lambda x: x.copy_to_host_async()),
        *(lambda x: x.block_until_ready(), lambda x: x.is_ready()),
    )
    for use in uses:
        assert code_of_use(use, donated) == "PWC0207"
        assert code_of_use(use, deleted) == "PWC0217"
    assert "donated" in repr(donated) and "deleted" in repr(deleted) and "deleted" in str(deleted)
    assert donated.shape == (4,) and donated.dtype == np.float32 and donated.devices() == set(SLICE.devices)


def test_deleting_an_array_frees_its_memory_at_once() -> None:
    before = process().store.bytes
    x = step(X)[0]
    assert process().store.bytes == before + x.nbytes
    x.delete()
    assert process().store.bytes == before


def test_fetching_more_than_the_fetch_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process().controller, "fetch_limit", 8)
    for use in (jnp.sum, lambda x: x + 1, lambda x: x[0], jax.device_put, jit(lambda a: a), list, pickle.dumps):
        assert code_of_use(use, FLOATS) == "PWC0516"
    assert_same(FLOATS.addressable_data(0), JF[:2])  # one shard is within the limit
    assert jax.eval_shape(jnp.sum, FLOATS).shape == () and FLOATS.copy().shape == (4,)
