"""Tests result files: `--inputs` and `pw.restore` read exactly what `pwc run --outputs` wrote, for every type."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support.element_types import random_of
from support.processes import pwc_here

import pathways as pw
from pathways.api.npz import INDEX, key_path, raw
from pathways.dialect.dtypes import _MLIR, is_of_numpy, numpy_dtype  # pyright: ignore[reportPrivateUsage]

TYPES_WITHOUT_X64 = sorted(name for name in _MLIR.values() if name not in ("int64", "uint64", "float64", "complex128"))
"""Every element type that a plan may have without jax_enable_x64."""
SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")


@pw.program(example_args=({{"a": jax.ShapeDtypeStruct((4, 2), "{dtype}"), "b": jax.ShapeDtypeStruct((), "{dtype}")}},))
def step(out):
    return jax.tree.map(lambda v: jax.device_put(v, NamedSharding(mesh, P())), out)
"""


def index_of(types: dict[str, str]) -> Any:
    """Builds an index member that states the element type of each array."""
    rows = [{"name": key_path(name), "dtype": dtype, "member": name} for name, dtype in types.items()]
    return np.frombuffer(json.dumps({"version": 1, "arrays": rows}).encode(), np.uint8)


@pytest.mark.parametrize("dtype", TYPES_WITHOUT_X64)
def test_snapshots_keep_every_element_type(dtype: str, tmp_path: Path) -> None:
    values = {"a": random_of(dtype, (4, 2), 1), "b": random_of(dtype, (), 2)}
    pw.save(values, tmp_path / "state.npz")
    restored = pw.restore(values, tmp_path / "state.npz")
    for name, value in values.items():
        assert restored[name].dtype == value.dtype and restored[name].tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", TYPES_WITHOUT_X64)
def test_outputs_of_every_element_type_are_read_back_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    source, plan = tmp_path / "model.py", tmp_path / "plan.bin"
    source.write_text(SOURCE.format(dtype=dtype))
    exit_code, _, stderr = pwc_here("compile", str(source), "-o", str(plan))
    if exit_code and "error[" in stderr:
        pytest.skip(f"jax of this version has no {dtype} on CPU: {stderr.splitlines()[0]}")
    values = {"a": random_of(dtype, (4, 2), 1), "b": random_of(dtype, (), 2)}
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    members: Any = {f"out['{k}']": raw(v) for k, v in values.items()}
    np.savez(first, **members)
    if dtype == "float8_e5m2":  # refused without an index: raw bytes do not state their type
        np.savez(first, **members, **{INDEX: index_of({k: dtype for k in members})})
    for given, written in ((first, second), (second, first)):
        exit_code, _, stderr = pwc_here("run", str(plan), "--inputs", str(given), "--outputs", str(written))
        assert exit_code == 0, stderr
        assert ("ml_dtypes" in stderr) == (not is_of_numpy(numpy_dtype(dtype)))
    with np.load(first) as file:
        assert (INDEX in file.files) == (not is_of_numpy(numpy_dtype(dtype)))
        for name, value in values.items():
            assert file[f"out['{name}']"].tobytes() == value.tobytes()
            view: Any = getattr(ml_dtypes, dtype, dtype)  # the view that the note on stderr recommends
            assert file[f"out['{name}']"].view(view).dtype == value.dtype
    restored = pw.restore(values, first)
    for name, value in values.items():
        assert restored[name].dtype == value.dtype and np.asarray(restored[name]).tobytes() == value.tobytes()


def test_element_types_of_one_size_are_not_confused(tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    for dtype, code in (("float8_e5m2", 0), ("float8_e4m3fn", 2)):
        source, plan = tmp_path / f"{dtype}.py", tmp_path / f"{dtype}.bin"
        source.write_text(SOURCE.format(dtype=dtype))
        assert pwc_here("compile", str(source), "-o", str(plan))[0] == 0
        if not out.exists():
            assert pwc_here("run", str(plan), "--outputs", str(out))[0] == 0
        got, _, stderr = pwc_here("run", str(plan), "--inputs", str(out))
        assert got == code
        if code:
            assert "error[PWC0501]" in stderr and "float8_e5m2" in stderr and "float8_e4m3fn" in stderr


def test_typed_keys_and_float0_are_read_back(tmp_path: Path) -> None:
    """Restores typed keys, which the file holds as integers, and float0, the gradient of an integer, without values."""
    source, plan, out = tmp_path / "model.py", tmp_path / "plan.bin", tmp_path / "out.npz"
    source.write_text(
        "import jax, jax.numpy as jnp, numpy as np, pathways as pw\n"
        "def loss(w, n):\n    return (w * n).sum()\n"
        "@pw.program(example_args=(jax.random.key(7), jnp.ones(3), np.arange(3)))\n"
        "def step(out, w, n):\n"
        "    return {'key': jax.random.fold_in(out, 1), 'nothing': jax.grad(loss, 1, allow_int=True)(w, n)}\n"
    )
    exit_code, _, stderr = pwc_here("compile", str(source), "-o", str(plan))
    assert exit_code == 0, stderr
    exit_code, _, stderr = pwc_here("run", str(source), "--outputs", str(out))
    assert exit_code == 0, stderr
    like = {"key": jax.random.key(0), "nothing": np.zeros(3, jax.dtypes.float0)}
    restored = pw.restore(like, out)
    assert restored["key"].dtype == like["key"].dtype and restored["nothing"].dtype == jax.dtypes.float0
    expected = jax.random.key_data(jax.random.fold_in(jax.random.key(7), 1))
    np.testing.assert_array_equal(jax.random.key_data(restored["key"]), expected)
    np.savez(tmp_path / "in.npz", out=np.asarray(expected), w=np.ones(3, np.float32), n=np.arange(3, dtype=np.int32))
    assert pwc_here("run", str(plan), "--inputs", str(tmp_path / "in.npz"))[0] == 0


def test_key_path_removes_the_root_name_out() -> None:
    assert key_path("out['x'][0]") == "['x'][0]" and key_path("out") == "." and key_path("out.mu") == ".mu"
    assert key_path("outer") == "outer" and key_path("w") == "w"


def test_an_invalid_index_is_refused(tmp_path: Path) -> None:
    source, plan, bad = tmp_path / "model.py", tmp_path / "plan.bin", tmp_path / "bad.npz"
    source.write_text(SOURCE.format(dtype="bfloat16"))
    assert pwc_here("compile", str(source), "-o", str(plan))[0] == 0
    arrays: Any = {"out['a']": np.zeros((4, 2), np.float32), "out['b']": np.zeros((), np.float32)}
    row = '"name": "[\'a\']", "member": "out[\'a\']", "dtype": '
    for index in (
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"version": 2, "arrays": []}',
        b'{"version": 1}',
        b'{"version": 1, "arrays": 3}',
        b'{"version": 1, "arrays": [{"dtype": "int8"}]}',
        f'{{"version": 1, "arrays": [{{{row}"no_such_type"}}]}}'.encode(),
        f'{{"version": 1, "arrays": [{{{row}"complex128"}}]}}'.encode(),
        f'{{"version": 1, "arrays": [{{{row}[]}}]}}'.encode(),
        f'{{"version": 1, "arrays": [{{{row}"key<fry>"}}]}}'.encode(),
        f'{{"version": 1, "arrays": [{{{row}"key<none>"}}]}}'.encode(),
    ):
        np.savez(bad, **(arrays | {INDEX: np.frombuffer(index, np.uint8)}))
        exit_code, _, stderr = pwc_here("run", str(plan), "--inputs", str(bad))
        assert exit_code == 2 and ("error[PWC0803]" in stderr or "error[PWC0501]" in stderr), (index, stderr)
        with pytest.raises(pw.PathwaysError, match="PWC0514"):
            pw.restore({"a": jnp.zeros((4, 2)), "b": jnp.zeros(())}, bad)


def test_command_line_numbers_that_their_type_cannot_hold_are_refused(tmp_path: Path) -> None:
    source, plan = tmp_path / "model.py", tmp_path / "plan.bin"
    for dtype, good, bad in (
        ("int8", "[[1, 2], [-128, 127], [0, 0], [0, 0]]", "[[1, 2], [128, 0], [0, 0], [0, 0]]"),
        ("uint8", "[[1, 2], [255, 0], [0, 0], [0, 0]]", "[[1, 2], [-1, 0], [0, 0], [0, 0]]"),
        ("int4", "[[1, 2], [-8, 7], [0, 0], [0, 0]]", "[[1, 2], [8, 0], [0, 0], [0, 0]]"),
        ("int32", "[[1, 2], [2147483647, 0], [0, 0], [0, 0]]", "[[1, 2], [2147483648, 0], [0, 0], [0, 0]]"),
        ("bool", "[[1, 0], [0, 0], [true, true], [0, 0]]", "[[1, 2], [0, 0], [0, 0], [0, 0]]"),
        ("int32", "[[1, 2], [3, 4], [5, 6], [7, 8]]", "[[1.5, 2], [3, 4], [5, 6], [7, 8]]"),
    ):
        source.write_text(SOURCE.format(dtype=dtype))
        assert pwc_here("compile", str(source), "-o", str(plan))[0] == 0
        for text, code in ((good, 0), (bad, 2)):
            got, _, stderr = pwc_here("run", str(plan), "--input", f"out['a']={text}", "--input", "out['b']=1")
            assert got == code, (dtype, text, stderr)
            assert not code or "error[PWC0803]" in stderr or "error[PWC0501]" in stderr
