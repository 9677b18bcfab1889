"""Lists the arguments and results of a plan as the user sees them: one entry for each array, even if the plan stores
the array in several buffers. The API and `pwc` call it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import leaves
from pathways.dialect.plan.nouns import Port


@dataclass(frozen=True)
class Leaf:
    """An array of the user: `port` is the whole array, `pieces` its buffers, `numbers` the indices of these ports.

    An array that is not cut has one piece, itself. `port` has the place of the first piece.
    """

    port: Port
    pieces: tuple[Port, ...]
    numbers: range

    @property
    def is_cut(self) -> bool:
        return self.pieces[0].piece is not None

    @property
    def axis(self) -> int:
        """The axis along which the array is cut; 0 if it is not cut."""
        piece = self.pieces[0].piece
        return 0 if piece is None else piece.axis

    @property
    def sizes(self) -> tuple[int, ...]:
        """The lengths of the pieces along the axis; empty if the array is not cut."""
        return tuple(p.type.shape[self.axis] for p in self.pieces) if self.is_cut else ()

    @property
    def indices(self) -> list[tuple[slice, ...]]:
        """The index of each piece in the array."""
        return [(p.piece.index(n) if p.piece else ()) for p, n in zip(self.pieces, self.sizes or (0,), strict=True)]


def leaves_of(ports: Sequence[Port]) -> tuple[Leaf, ...]:
    """Groups the arguments or results of a valid plan into arrays of the user."""
    return tuple(_leaf(ports, numbers) for numbers in leaves([p.piece for p in ports]))


def leaf_ports(ports: Sequence[Port]) -> tuple[Port, ...]:
    """Returns one port an array; arrays in pieces are shown as if they were not cut."""
    return tuple(leaf.port for leaf in leaves_of(ports))


def _leaf(ports: Sequence[Port], numbers: range) -> Leaf:
    pieces = tuple(ports[n] for n in numbers)
    first = pieces[0]
    if first.piece is None:
        return Leaf(first, pieces, numbers)
    axis, shape = first.piece.axis, list(first.type.shape)
    shape[axis] = first.piece.whole
    slot = max(p.slot for p in pieces)  # the slot of a piece that is used, if any; unused ones have -1
    port = replace(first, name=first.piece.leaf, type=ArrayType(tuple(shape), first.type.dtype), piece=None, slot=slot)
    return Leaf(port, pieces, numbers)
