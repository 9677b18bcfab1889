"""Arrays of a user that are held in several buffers: names, indices and order of the pieces."""

from typing import Any

import numpy as np
import pytest

from pathways.dialect.pieces import LeafPiece, leaves, piece_problem, read_piece, write_piece


def piece(start: int, leaf: str = "w", axis: int = 0, whole: int = 6) -> LeafPiece:
    return LeafPiece(leaf, axis, start, whole)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_piece_is_named_as_its_index_is_written(axis: int) -> None:
    array = np.arange(216).reshape(6, 6, 6)
    found = LeafPiece("w", axis, 4, 6)
    assert found.named(1) == f"w{['[4:5]', '[:, 4:5]', '[:, :, 4:5]'][axis]}"
    np.testing.assert_array_equal(array[found.index(1)], eval(found.named(1), {"w": array}))


def test_a_written_piece_is_read_back() -> None:
    found = LeafPiece("params['w']", 1, 6, 12)
    assert read_piece(write_piece(found)) == found


@pytest.mark.parametrize(
    "text", ["", "{}", '["w",0,1]', '["w",0,0,1,1]', '["w","0",0,1]', "[1,0,0,1]", '["w",0,0.5,1]']
)
def test_text_that_is_no_piece_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_piece(text)


def test_buffers_are_grouped_by_array() -> None:
    assert list(leaves([])) == []
    assert list(leaves([None])) == [range(1)]
    assert list(leaves([None, piece(0), piece(2), piece(0), None, None])) == [
        range(1), range(1, 3), range(3, 4), range(4, 5), range(5, 6),
    ]  # fmt: skip


GOOD: list[list[tuple[LeafPiece | None, tuple[int, ...], object]]] = [
    [],
    [(None, (), "f")],
    [(piece(0), (6,), "f")],
    [(None, (3,), "f"), (piece(0), (1, 4), "f"), (piece(1), (5, 4), "f"), (None, (0,), "f")],
    [(piece(0, axis=1), (4, 3, 2), "f"), (piece(3, axis=1), (4, 3, 2), "f"), (piece(0, "v"), (6, 1), "g")],
]


@pytest.mark.parametrize("buffers", GOOD)
def test_pieces_that_make_up_their_arrays_have_no_problem(buffers: list[Any]) -> None:
    assert piece_problem(buffers) is None


BAD: list[tuple[list[tuple[LeafPiece | None, tuple[int, ...], object]], str]] = [
    ([(None, (3,), "f"), (piece(3), (3,), "f")], "a piece after an array that is not split"),
    ([(None, (3,), "f"), (piece(0), (5,), "f")], "pieces of w that make up 5 of 6"),
    ([(piece(3), (3,), "f")], "a piece after an array that is not split"),
    ([(piece(0), (3,), "f"), (piece(3, "v"), (3,), "f")], "a piece of another array among those of w"),
    ([(piece(0), (3, 6), "f"), (piece(3, axis=1), (3, 6), "f")], "a piece of another array among those of w"),
    ([(piece(0), (3,), "f"), (piece(3, whole=7), (3,), "f")], "a piece of another array among those of w"),
    ([(piece(0), (3,), "f"), (piece(2), (3,), "f")], "pieces of w that are not consecutive"),
    ([(piece(0), (3,), "f"), (piece(4), (2,), "f")], "pieces of w that are not consecutive"),
    ([(piece(0), (0,), "f"), (piece(0), (6,), "f")], "pieces of w that are not consecutive"),
    ([(piece(0), (), "f")], "pieces of w that are not consecutive"),
    ([(piece(0, axis=1), (6,), "f")], "pieces of w that are not consecutive"),
    ([(piece(0, axis=-1), (6,), "f")], "pieces of w that are not consecutive"),
    ([(piece(0), (3, 2), "f"), (piece(3), (3, 1), "f")], "pieces of w of different types"),
    ([(piece(0), (3, 2), "f"), (piece(3), (3, 2, 1), "f")], "pieces of w of different types"),
    ([(piece(0, axis=1), (2, 3), "f"), (piece(3, axis=1), (1, 3), "f")], "pieces of w of different types"),
    ([(piece(0), (3,), "f"), (piece(3), (3,), "g")], "pieces of w of different types"),
    ([(piece(0), (3,), "f"), (piece(3), (2,), "f")], "pieces of w that make up 5 of 6"),
    ([(piece(0), (3,), "f"), (piece(3), (4,), "f")], "pieces of w that make up 7 of 6"),
    ([(piece(0, "v"), (6,), "f"), (piece(0), (5,), "f")], "pieces of w that make up 5 of 6"),
]


@pytest.mark.parametrize(("buffers", "problem"), BAD)
def test_pieces_that_make_up_no_array_are_described(buffers: list[Any], problem: str) -> None:
    assert piece_problem(buffers) == problem
