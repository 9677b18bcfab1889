"""The arguments and results of a plan as its user sees them: one an array, whether it is one buffer or several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import leaves
from pathways.dialect.plan.nouns import Port


@dataclass(frozen=True)
class Leaf:
    """An array of the user's: `port` is all of it, `pieces` the buffers that hold it, `numbers` their places.

    A whole array has one piece, itself. The place of `port` is that of the first piece.
    """

    port: Port
    pieces: tuple[Port, ...]
    numbers: range

    @property
    def is_cut(self) -> bool:
        return self.pieces[0].piece is not None

    @property
    def axis(self) -> int:
        """The axis along which it is cut; 0 for one that is whole."""
        piece = self.pieces[0].piece
        return 0 if piece is None else piece.axis

    @property
    def sizes(self) -> tuple[int, ...]:
        """The elements of its pieces along the axis; empty for one that is whole."""
        return tuple(p.type.shape[self.axis] for p in self.pieces) if self.is_cut else ()

    @property
    def indices(self) -> list[tuple[slice, ...]]:
        """The part of the array that each piece is."""
        return [(p.piece.index(n) if p.piece else ()) for p, n in zip(self.pieces, self.sizes or (0,), strict=True)]


def leaves_of(ports: Sequence[Port]) -> tuple[Leaf, ...]:
    """Finds the arrays that arguments or results of a checked plan make up."""
    return tuple(_leaf(ports, numbers) for numbers in leaves([p.piece for p in ports]))


def leaf_ports(ports: Sequence[Port]) -> tuple[Port, ...]:
    """Returns one argument or result an array, those in pieces as if they were whole."""
    return tuple(leaf.port for leaf in leaves_of(ports))


def _leaf(ports: Sequence[Port], numbers: range) -> Leaf:
    pieces = tuple(ports[n] for n in numbers)
    first = pieces[0]
    if first.piece is None:
        return Leaf(first, pieces, numbers)
    axis, shape = first.piece.axis, list(first.type.shape)
    shape[axis] = first.piece.whole
    slot = max(p.slot for p in pieces)  # one that something reads, if any is
    port = replace(first, name=first.piece.leaf, type=ArrayType(tuple(shape), first.type.dtype), piece=None, slot=slot)
    return Leaf(port, pieces, numbers)
