"""Describes arrays of the user that a program stores in several buffers, called pieces, cut along one axis. The JAX
front end decides which arguments and results are stored in this way, and the API joins them again.

IR and plans record the pieces.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any


@dataclass(frozen=True)
class LeafPiece:
    """One buffer of an array that several buffers hold: its elements from `start` on, of `whole`, along an axis.

    `leaf` is the name of the array. The pieces of an array are consecutive.
    """

    leaf: str
    axis: int
    start: int
    whole: int

    def named(self, size: int) -> str:
        """Formats the name of a piece of `size` elements: `params['w'][6:12]`, `params['w'][:, 6:12]`."""
        return f"{self.leaf}[{':, ' * self.axis}{self.start}:{self.start + size}]"

    def index(self, size: int) -> tuple[slice, ...]:
        """Returns the index of a piece of `size` elements in its array."""
        return (slice(None),) * self.axis + (slice(self.start, self.start + size),)


def write_piece(piece: LeafPiece) -> str:
    """Serializes a piece as text for the IR."""
    return json.dumps(astuple(piece), separators=(",", ":"))


def read_piece(text: str) -> LeafPiece:
    """Parses a piece. Raises ValueError for other text."""
    row: Any = json.loads(text)
    match row:
        case [str(leaf), int(axis), int(start), int(whole)]:
            return LeafPiece(leaf, axis, start, whole)
        case _:
            raise ValueError(f"{text!r} for a piece")


def leaves(pieces: Sequence[LeafPiece | None]) -> Iterator[range]:
    """Yields for each array the indices of its buffers: one index, or those of its pieces."""
    begin = 0
    for number, piece in enumerate(pieces):
        if piece is None or piece.start == 0:
            if number > begin:
                yield range(begin, number)
            begin = number
    if pieces:
        yield range(begin, len(pieces))


def piece_problem(pieces: Sequence[tuple[LeafPiece | None, tuple[int, ...], object]]) -> str | None:
    """Describes the first error in the pieces of some buffers; each row also has the shape and a value that must match.

    Returns None if the pieces are right.
    """
    for numbers in leaves([piece for piece, _, _ in pieces]):
        first = pieces[numbers[0]][0]
        if first is None and len(numbers) == 1:
            continue
        if first is None or first.start != 0:
            return "a piece after an array that is not split"
        at = 0
        for number in numbers:
            piece, shape, other = pieces[number]
            if piece is None or (piece.leaf, piece.axis, piece.whole) != (first.leaf, first.axis, first.whole):
                return f"a piece of another array among those of {first.leaf}"
            if not 0 <= piece.axis < len(shape) or shape[piece.axis] < 1 or piece.start != at:
                return f"pieces of {first.leaf} that are not consecutive"
            rest = shape[: piece.axis] + shape[piece.axis + 1 :]
            if (rest, other) != (_rest(pieces[numbers[0]][1], first.axis), pieces[numbers[0]][2]):
                return f"pieces of {first.leaf} of different types"
            at += shape[piece.axis]
        if at != first.whole:
            return f"pieces of {first.leaf} that make up {at} of {first.whole}"
    return None


def _rest(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
