"""Element types: bytes, spelling in MLIR, and what arrays of them are stored as."""

import jax.numpy as jnp
import numpy as np
import pytest

from pathways.dialect.dtypes import (
    ArrayType,
    from_mlir,
    is_array_type,
    is_of_numpy,
    is_stored_as_named,
    native,
    numpy_dtype,
    shared_type,
    stored_names,
)  # fmt: skip
from pathways.dialect.mlir import ir, make_context


def test_a_type_knows_its_bytes_and_those_of_a_shard() -> None:
    assert ArrayType((2, 3), "float32").bytes == 24 and ArrayType((), "complex128").bytes == 16
    assert ArrayType((4, 6), "bfloat16").shard_bytes((2, 3)) == 12 and ArrayType((4,), "int8").shard_bytes((0,)) == 0


def test_a_type_is_spelled_as_mlir_and_as_jax_spell_it() -> None:
    type_ = ArrayType((2, 3), "float32")
    assert (type_.mlir, str(type_)) == ("tensor<2x3xf32>", "float32[2,3]")
    assert (ArrayType((), "bool").mlir, str(ArrayType((), "bool"))) == ("tensor<i1>", "bool[]")


def test_every_stored_type_is_read_from_mlir_as_it_was_written() -> None:
    with make_context():
        for name in stored_names():
            written = ArrayType((2, 0), name)
            read = ir.Type.parse(written.mlir)
            assert is_array_type(read) and from_mlir(read) == written and is_stored_as_named(name)
        for text in ("tensor<?xf32>", "tensor<*xf32>", "tensor<2xindex>", "f32", "vector<2xf32>"):
            assert not is_array_type(ir.Type.parse(text)), text
    assert not is_stored_as_named("key<fry>") and not is_stored_as_named("float0")


def test_numpy_types_include_those_of_ml_dtypes() -> None:
    assert numpy_dtype("bfloat16") == jnp.bfloat16 and numpy_dtype("int32") == np.int32
    assert is_of_numpy(np.dtype("float32")) and not is_of_numpy(numpy_dtype("float8_e5m2"))
    with pytest.raises(TypeError):
        numpy_dtype("float7")


def test_an_array_of_the_other_byte_order_is_converted() -> None:
    swapped = np.arange(3, dtype=np.dtype(np.int32).newbyteorder("S"))
    found = native(swapped)
    assert found.dtype.isnative and found.tolist() == [0, 1, 2]
    for other in (np.arange(3), np.array([None]), 3, [1]):
        assert native(other) is other
    mixed = np.zeros(2, np.dtype([("a", object), ("b", np.dtype(np.int32).newbyteorder("S"))]))
    assert native(mixed) is mixed


def test_equal_types_are_one_object() -> None:
    assert shared_type((2, 3), "int8") is shared_type((2, 3), "int8") and shared_type((2,), "int8").dtype == "int8"
