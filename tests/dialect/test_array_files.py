"""Array files store arrays of every type in chunks, for any sharding. Damaged files are refused."""

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.element_types import random_of
from support.full_disk import full_disk

from pathways.dialect import array_files
from pathways.dialect.array_files import ArrayFile, chunk_of, pieces, read_array_file
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, stored_names
from pathways.dialect.sharding import volume

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((6, 4), (3, 4)),
    ((5, 1, 4), (5, 1, 2)),
    ((0, 3), (0, 3)),
]


def write_array(folder: Path, values: "np.ndarray[Any, Any]", part: tuple[int, ...]) -> ArrayFile:
    """Writes an array in boxes of shape `part`, and returns its file."""
    type_ = ArrayType(values.shape, str(values.dtype))
    file = ArrayFile("a0", type_, chunk_of(type_, part))
    file.create(folder)
    cuts = [range(0, max(n, 1), max(p, 1)) for n, p in zip(values.shape, part, strict=True)]
    for start in np.ndindex(*map(len, cuts)):
        box = tuple((i * p, (i + 1) * p) for i, p in zip(start, part, strict=True))
        file.write(folder, box, values[tuple(slice(*cut) for cut in box)])
    return file


def code_of_reading(file: ArrayFile, folder: Path) -> tuple[str, Any]:
    try:
        return "", file.read(folder, file.whole)
    except PathwaysError as error:
        return error.code, None


@pytest.mark.parametrize("dtype", stored_names())
def test_arrays_of_every_type_are_read_back_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    for number, (shape, part) in enumerate(SHAPES):
        folder = tmp_path / str(number)
        folder.mkdir()
        values = random_of(dtype, shape, number)
        file = write_array(folder, values, part)
        found = file.read(folder, file.whole)
        assert found.dtype == values.dtype and found.shape == shape and found.tobytes() == values.tobytes()


@given(st.data())
def test_chunks_divide_shards_and_cover_the_array(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), max_size=3))
    part = tuple(data.draw(st.integers(1, 40)) for _ in counts)
    shape = tuple(n * p for n, p in zip(counts, part, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_files, "MAX_CHUNK_BYTES", 64)
        patch.setattr(array_files, "_MIN_CHUNK_BYTES", 4)
        chunk = chunk_of(ArrayType(shape, "float32"), part)
    for length, whole, size in zip(part, shape, chunk, strict=True):
        assert length % size == 0 or length == whole
    whole = tuple((0, n) for n in shape)
    assert sum(map(volume, pieces(whole, chunk))) == volume(whole)
    assert np.prod(chunk) * 4 <= 64


def test_large_shards_are_cut_into_chunks() -> None:
    mib = 1 << 20
    for shape, part, chunk in (
        ((mib, 1024), (mib // 4, 1024), (16384, 1024)),
        ((7919, 4096), (7919, 4096), (4096, 4096)),
        ((2 * 7919, 65536), (7919, 65536), (7919, 2118)),  # a sharded dimension of prime length is not cut
        ((3, mib * 256), (1, mib * 256), (1, mib * 16)),
        ((3, mib * 256), (3, mib * 256), (1, mib * 16)),
        ((mib * 16, 3), (mib * 16, 3), (mib * 16 // 3, 3)),
        ((), (), ()),
    ):
        assert chunk_of(ArrayType(shape, "float32"), part) == chunk


def test_any_box_of_an_array_can_be_read(tmp_path: Path) -> None:
    rng = random.Random(0)
    values = random_of("bfloat16", (12, 10), 1)
    file = write_array(tmp_path, values, (3, 5))
    for _ in range(50):
        box = tuple(tuple(sorted((rng.randint(0, n), rng.randint(0, n)))) for n in values.shape)
        assert file.read(tmp_path, box).tobytes() == values[tuple(slice(*cut) for cut in box)].tobytes()  # pyright: ignore


def test_a_damaged_file_is_refused_or_read_unchanged(tmp_path: Path) -> None:
    """Each file of the array is removed, emptied, truncated, extended, or has one bit flipped."""
    rng = random.Random(1)
    values = random_of("float32", (8, 4), 2)
    file = write_array(tmp_path, values, (4, 2))
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    refused = 0
    assert len(files) == 5
    for path in files:
        raw = path.read_bytes()
        flips = (bytearray(raw) for _ in range(40))
        damaged = [None, b"", raw[:-1], raw[: len(raw) // 2], raw + b"x", *map(bytes, map(flip, flips, [rng] * 40))]
        for bad in damaged:
            if bad is None:
                path.unlink()
            else:
                path.write_bytes(bad)
            code, found = code_of_reading(file, tmp_path)
            refused += code == "PWC0615"
            assert code == "PWC0615" or found.tobytes() == values.tobytes(), bad
        path.write_bytes(raw)
    assert refused > 4 * 44 and code_of_reading(file, tmp_path)[0] == ""


def flip(raw: bytearray, rng: random.Random) -> bytearray:
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return raw


def test_zeros_are_stored_and_missing_chunks_are_refused(tmp_path: Path) -> None:
    type_ = ArrayType((4, 4), "float32")
    file = ArrayFile("a0", type_, (2, 4))
    file.create(tmp_path)
    file.write(tmp_path, ((0, 2), (0, 4)), np.zeros((2, 4), np.float32))
    assert not file.read(tmp_path, ((0, 2), (0, 4))).any()
    assert code_of_reading(file, tmp_path)[0] == "PWC0615"


def test_creating_an_array_twice_or_writing_without_creating_is_refused(tmp_path: Path) -> None:
    file = write_array(tmp_path, np.ones((2, 2)), (2, 2))
    with pytest.raises(PathwaysError, match="PWC0606"):
        file.create(tmp_path)
    with pytest.raises(PathwaysError, match="PWC0606"):
        ArrayFile("a1", file.type, file.chunk).write(tmp_path, file.whole, np.ones((2, 2)))


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    file = ArrayFile("a0", ArrayType((1 << 16,), "uint8"), (1 << 13,))
    file.create(tmp_path)
    with full_disk(), pytest.raises(PathwaysError) as caught:
        file.write(tmp_path, file.whole, np.ones(1 << 16, np.uint8))
    assert caught.value.code == "PWC0606" and "too large" in str(caught.value)
    assert code_of_reading(file, tmp_path)[0] == "PWC0615"
    assert not [n for _, _, names in os.walk(tmp_path) for n in names if "lock" in n and n != "zarr.json"]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {"name": "../a0"},
        {"name": "a0/../../b"},
        {"name": "a-1"},
        {"name": 7},
        {"dtype": "object"},
        {"dtype": []},
        {"shape": [4.0]},
        {"shape": [-4]},
        {"shape": [True]},
        {"shape": 4},
        {"chunk": [0]},
        {"chunk": []},
    ],
)
def test_an_invalid_array_description_is_refused(bad: Any) -> None:
    good = ArrayFile("a0", ArrayType((4,), "int4"), (2,))
    text = json.loads(json.dumps(good.as_json()))
    assert read_array_file(text) == good
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_array_file(text | bad if isinstance(bad, dict) and bad else bad)


def test_a_part_of_an_array_is_read_and_written_in_its_place(tmp_path: Path) -> None:
    values = random_of("int32", (6, 8), 3)
    file = write_array(tmp_path, values, (2, 4))
    part = file.part(1, 4, 4)
    assert part.type == ArrayType((6, 4), "int32") and part.within == ((6, 8), (0, 4)) and part.name == file.name
    np.testing.assert_array_equal(part.read(tmp_path, part.whole), values[:, 4:8])
    np.testing.assert_array_equal(part.read(tmp_path, ((1, 3), (2, 3))), values[1:3, 6:7])
    part.write(tmp_path, ((2, 4), (0, 4)), np.zeros((2, 4), np.int32))
    values[2:4, 4:8] = 0
    np.testing.assert_array_equal(file.read(tmp_path, file.whole), values)
    assert read_array_file(json.loads(json.dumps(part.as_json()))) == part
    assert "within" not in file.as_json()


def test_an_empty_array_and_many_chunks_are_read_back(tmp_path: Path) -> None:
    empty = ArrayFile("a0", ArrayType((0, 3), "float32"), (1, 3))
    assert read_array_file(json.loads(json.dumps(empty.as_json()))) == empty
    values = random_of("int32", (5, 5), 4)
    file = write_array(tmp_path, values, (1, 1))  # more chunks than are written at once
    np.testing.assert_array_equal(file.read(tmp_path, file.whole), values)


@pytest.mark.parametrize(
    ("within", "fits"),
    [
        ([[4], [0]], True),
        ([[9], [5]], True),
        ([[9], [0]], True),
        ([[3], [0]], False),
        ([[9], [6]], False),
        ([[9], [-1]], False),
        ([[9, 9], [0, 0]], False),
        ([[9], [0, 0]], False),
        ([[9, 9], [0]], False),
        ([[9.0], [0]], False),
        ([[9], [0.0]], False),
        ([[9], [True]], False),
        ([[9]], False),
    ],
)
def test_a_part_lies_within_its_array(within: Any, fits: bool) -> None:
    text = json.loads(json.dumps(ArrayFile("a0", ArrayType((4,), "int8"), (2,)).as_json())) | {"within": within}
    if fits:
        assert read_array_file(text).within == (tuple(within[0]), tuple(within[1]))
    else:
        with pytest.raises((ValueError, TypeError)):
            read_array_file(text)
