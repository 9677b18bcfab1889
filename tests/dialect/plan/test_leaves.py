"""Ports of a plan are shown as the arrays of its user, those in pieces as one."""

from dataclasses import replace

from support.plans_by_hand import port

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import LeafPiece
from pathways.dialect.plan.leaves import leaf_ports, leaves_of
from pathways.dialect.plan.nouns import Port


def piece(start: int, size: int, slot: int) -> Port:
    made = replace(port("left", slot), type=ArrayType((4, size), "float32"), name=f"w[:, {start}:{start + size}]")
    return replace(made, piece=LeafPiece("w", 1, start, 6))


WHOLE = replace(port("left", 5), name="x")
PORTS = (WHOLE, piece(0, 2, -1), piece(2, 3, 7), piece(5, 1, 2), replace(WHOLE, name="y"))


def test_pieces_are_shown_as_one_array() -> None:
    whole, cut, last = leaves_of(PORTS)
    assert (whole.port, whole.pieces, whole.numbers) == (WHOLE, (WHOLE,), range(1)) and last.numbers == range(4, 5)
    assert cut.port == replace(PORTS[1], name="w", type=ArrayType((4, 6), "float32"), piece=None, slot=7)
    assert (cut.pieces, cut.numbers) == (PORTS[1:4], range(1, 4))
    assert leaf_ports(PORTS) == (WHOLE, cut.port, PORTS[4])


def test_pieces_know_where_they_are() -> None:
    whole, cut, _ = leaves_of(PORTS)
    assert (whole.is_cut, whole.axis, whole.sizes, whole.indices) == (False, 0, (), [()])
    assert (cut.is_cut, cut.axis, cut.sizes) == (True, 1, (2, 3, 1))
    assert cut.indices == [(slice(None), slice(a, b)) for a, b in ((0, 2), (2, 5), (5, 6))]


def test_an_array_that_nothing_reads_has_no_slot() -> None:
    (unused,) = leaf_ports((piece(0, 3, -1), piece(3, 3, -1)))
    assert unused.slot == -1
