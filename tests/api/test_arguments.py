"""Tests which arguments programs accept, in every numpy layout and byte order, and the errors that name all others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("d")
f = jax.jit(lambda x: x * 2, in_shardings=NamedSharding(mesh, P("d")))
X = np.arange(24, dtype=np.float32).reshape(4, 6)


def plain(x: Any) -> Any:
    return f(x)


double = pw.program(plain)
compiled = double.lower(X).compile()

LAYOUTS: dict[str, Callable[[], Any]] = {
    "fortran": lambda: np.asfortranarray(X),
    "reversed": lambda: X[::-1, ::-1],
    "strided": lambda: np.repeat(X, 2, 1)[:, ::2],
    "broadcast": lambda: np.broadcast_to(X[:1], (4, 6)),
    "unaligned": lambda: np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6),
    "the other byte order": lambda: X.astype(">f4"),
    "the other byte order, reversed": lambda: X.astype(">f4")[::-1],
    "matrix": lambda: np.asmatrix(X),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_of_every_numpy_memory_layout_are_accepted(name: str, tmp_path: Path) -> None:
    array = LAYOUTS[name]()
    compiled.save(tmp_path / "plan.bin")
    for call in (double, compiled, pw.load(tmp_path / "plan.bin")):
        assert np.array_equal(np.asarray(call(array)), 2 * np.asarray(X if name == "matrix" else array))


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">i2", ">i4", ">u2", ">u4", ">c8", "<f4", "<i4"])
def test_arrays_of_either_byte_order_give_native_results(dtype: str) -> None:
    array = np.array([1, 2, 3, 200], dtype)
    made = double(array)
    assert made.dtype == np.dtype(dtype).newbyteorder("=") and np.array_equal(np.asarray(made), array * 2)
    assert np.array_equal(np.asarray(pw.program(plain).lower(array).compile()(array)), array * 2)


def test_wide_numbers_of_the_other_byte_order_keep_their_width() -> None:
    with jax.enable_x64():
        for dtype in (">f8", ">i8", ">c16"):
            array = np.array([1, -2, 3, 2**40], dtype)
            made = double(array)
            assert made.dtype.itemsize == np.dtype(dtype).itemsize and np.array_equal(np.asarray(made), array * 2)


UNSUPPORTED_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "object": (X.astype(object), "ndarray of dtype object"),
    "datetime": (np.array(["2020-01-01"], "M8[D]"), "dtype datetime64[D]"),
    "timedelta": (np.array([1], "m8[s]"), "dtype timedelta64[s]"),
    "text": (np.array(["a", "b"]), "dtype <U1"),
    "structured": (np.zeros(3, [("a", "f4")]), "dtype [('a', '<f4')]"),
    "long double": (np.zeros(2, np.longdouble), f"dtype {np.dtype(np.longdouble)}"),
    "masked": (np.ma.masked_array(X, X > 3), "a masked array"),
    "str": ("a", "a str"),
    "set": ({1}, "a set"),
}


@pytest.mark.parametrize("name", UNSUPPORTED_ARGUMENTS)
def test_an_argument_that_is_no_array_is_named_in_the_error(name: str) -> None:
    value, have = UNSUPPORTED_ARGUMENTS[name]
    program = pw.program(lambda x, state: plain(x))
    with pytest.raises(Exception) as by_jit:
        jax.jit(lambda x, state: x)(X, {"m": [X, value]})
    for call in (program, program.lower):
        with pytest.raises(pw.PathwaysError, match="PWC0104") as caught:
            call(X, {"m": [X, value]})
        error = caught.value.diagnostic
        assert isinstance(caught.value, by_jit.type)
        assert "state['m'][1]" in error.text(error.title) and have in error.text(error.have)
        assert error.where is not None and error.where.file == __file__


@pytest.mark.parametrize("name", [n for n in UNSUPPORTED_ARGUMENTS if n != "set"])
def test_a_compiled_program_refuses_arguments_that_are_no_arrays(name: str) -> None:
    with pytest.raises(pw.PathwaysError, match="PWC0501") as caught:
        compiled(
            np.resize(UNSUPPORTED_ARGUMENTS[name][0], X.shape)
            if name not in ("masked", "str")
            else UNSUPPORTED_ARGUMENTS[name][0]
        )
    assert "argument x of plain" in str(caught.value)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40, 2**70])
def test_an_integer_too_large_for_its_type_is_named_in_the_error(value: int) -> None:
    program = pw.program(lambda x, n: f(x) * n["count"])
    for call in (program, program.lower, program.lower(X, {"count": 1}).compile()):
        with pytest.raises(pw.PathwaysError, match="PWC0501") as caught:
            call(X, {"count": value})
        assert isinstance(caught.value, OverflowError), call
        error = caught.value.diagnostic
        assert "n['count']" in error.text(error.title)
        assert error.text(error.have) == f"{value}, which int32 cannot hold"


def test_integers_at_the_limits_of_int32_are_accepted() -> None:
    program = pw.program(lambda n: f(np.zeros(2, np.int32)) + n)
    for value in (2**31 - 1, -(2**31)):
        assert np.asarray(program(value)).tolist() == [value] * 2
    with jax.enable_x64(), pytest.raises(pw.PathwaysError, match="which int64 cannot hold"):
        program(2**63)


def test_arrays_of_small_element_types_are_accepted() -> None:
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.int8, np.bool_):
        array = np.array([0, 1, 1, 0], dtype)
        same = pw.program(lambda x: jax.jit(lambda v: v, in_shardings=NamedSharding(mesh, P("d")))(x))
        assert np.array_equal(np.asarray(same(array)), array)


def test_a_sharding_of_more_dimensions_than_its_value_is_refused() -> None:
    programs = [lambda x: f(x), lambda x: jax.device_put(x[0].sum(), NamedSharding(mesh, P("d")))]
    for function in programs:
        with pytest.raises(pw.PathwaysError, match="PWC0209"):
            pw.program(function)([1.0, 2.0] if function is programs[0] else X)


@pytest.mark.parametrize("number", [0, 1, 2, -1, -2, -3])
def test_donate_argnums_counts_arguments_from_either_end(number: int) -> None:
    program = pw.program(lambda a, b, c: (a + 1, b + 1, c + 1), donate_argnums=number)
    plan = program.lower(X, X, X).compile().plan
    assert [p.donated for p in plan.inputs] == [n == number % 3 for n in range(3)]
