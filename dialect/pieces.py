"""Arrays in pieces: which buffers of a program are one array of its user's, cut along an axis."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any


@dataclass(frozen=True)
class LeafPiece:
    """One buffer of an array that is held in several: elements from `start` on, of `whole`, along an axis.

    `leaf` is the name of the array; its pieces follow each other.
    """

    leaf: str
    axis: int
    start: int
    whole: int

    def named(self, size: int) -> str:
        """Names a piece of so many elements: `params['w'][6:12]`, `params['w'][:, 6:12]`."""
        return f"{self.leaf}[{':, ' * self.axis}{self.start}:{self.start + size}]"

    def index(self, size: int) -> tuple[slice, ...]:
        """The part of the array that a piece of so many elements is."""
        return (slice(None),) * self.axis + (slice(self.start, self.start + size),)


def write_piece(piece: LeafPiece) -> str:
    """Writes a piece as text, for the IR."""
    return json.dumps(astuple(piece), separators=(",", ":"))


def read_piece(text: str) -> LeafPiece:
    """Reads a piece. Raises ValueError for other text."""
    row: Any = json.loads(text)
    match row:
        case [str(leaf), int(axis), int(start), int(whole)]:
            return LeafPiece(leaf, axis, start, whole)
        case _:
            raise ValueError(f"{text!r} for a piece")


def leaves(pieces: Sequence[LeafPiece | None]) -> Iterator[range]:
    """Yields for each array the numbers of its buffers: one, or those of its pieces."""
    begin = 0
    for number, piece in enumerate(pieces):
        if piece is None or piece.start == 0:
            if number > begin:
                yield range(begin, number)
            begin = number
    if pieces:
        yield range(begin, len(pieces))


def piece_problem(pieces: Sequence[tuple[LeafPiece | None, tuple[int, ...], object]]) -> str | None:
    """Says what is wrong with the pieces of some buffers, each with its shape and all else that must be equal."""
    for numbers in leaves([piece for piece, _, _ in pieces]):
        first = pieces[numbers[0]][0]
        if first is None and len(numbers) == 1:
            continue
        if first is None or first.start != 0:
            return "a piece behind an array that is whole"
        at = 0
        for number in numbers:
            piece, shape, other = pieces[number]
            if piece is None or (piece.leaf, piece.axis, piece.whole) != (first.leaf, first.axis, first.whole):
                return f"a piece of another array among those of {first.leaf}"
            if not 0 <= piece.axis < len(shape) or shape[piece.axis] < 1 or piece.start != at:
                return f"pieces of {first.leaf} that do not follow each other"
            rest = shape[: piece.axis] + shape[piece.axis + 1 :]
            if (rest, other) != (_rest(pieces[numbers[0]][1], first.axis), pieces[numbers[0]][2]):
                return f"pieces of {first.leaf} of different types"
            at += shape[piece.axis]
        if at != first.whole:
            return f"pieces of {first.leaf} that make up {at} of {first.whole}"
    return None


def _rest(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
