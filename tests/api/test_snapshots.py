"""Tests that `pw.restore` refuses every shape and element type except those that were saved."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathways as pw

SAVED: dict[str, Any] = {
    "float32": np.arange(4, dtype=np.float32),
    "int32": np.arange(4, dtype=np.int32),
    "bfloat16": jnp.arange(4, dtype=jnp.bfloat16),
    "uint8": np.arange(4, dtype=np.uint8),
    "bool": np.arange(4) % 2 == 0,
    "key": jax.random.split(jax.random.key(0), 4),
    "float0": np.zeros(4, jax.dtypes.float0),
}


@pytest.mark.parametrize("saved", SAVED)
@pytest.mark.parametrize("wanted", SAVED)
def test_only_the_saved_element_type_is_restored(saved: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    pw.save({"w": SAVED[saved]}, path)
    if saved == wanted:
        assert pw.restore({"w": SAVED[wanted]}, path)["w"].dtype == SAVED[saved].dtype
        return
    with pytest.raises(pw.PathwaysError) as caught:
        pw.restore({"w": SAVED[wanted]}, path)
    assert caught.value.code == "PWC0514" and "['w']" in str(caught.value)


@pytest.mark.parametrize("shape", [(), (3,), (5,), (4, 1), (1, 4), (2, 2)])
def test_shapes_other_than_the_saved_one_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    pw.save({"w": SAVED["float32"]}, path)
    with pytest.raises(pw.PathwaysError, match="PWC0514"):
        pw.restore({"w": jax.ShapeDtypeStruct(shape, np.float32)}, path)


def test_all_mismatches_are_reported_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    pw.save({"a": SAVED["float32"], "b": SAVED["int32"], "c": SAVED["uint8"]}, path)
    with pytest.raises(pw.PathwaysError) as caught:
        pw.restore({"a": SAVED["int32"], "b": np.zeros(3, np.int32), "c": SAVED["uint8"], "d": SAVED["bool"]}, path)
    names = [d.name for d in caught.value.diagnostics]  # pyright: ignore
    assert names == ["['a']", "['b']", "['d']"]


def test_a_float0_gradient_is_restored_as_float0(tmp_path: Path) -> None:
    """Restores the gradient of an integer from a program and from a numpy array."""
    path = tmp_path / "state.npz"
    program = pw.program(lambda n: jax.grad(lambda n: (n * 2.0).sum(), allow_int=True)(n))
    nothing = program(np.arange(3))
    pw.save({"ours": nothing, "numpy": SAVED["float0"]}, path)
    back = pw.restore({"ours": nothing, "numpy": SAVED["float0"]}, path)
    assert [back[n].dtype for n in ("ours", "numpy")] == [jax.dtypes.float0] * 2
    assert (back["ours"].shape, back["numpy"].shape) == ((3,), (4,))
