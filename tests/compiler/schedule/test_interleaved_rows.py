"""Tests the exact orders of interleaved 1F1B: each rank warms up with two microbatches more than the next rank."""

import pytest
from support.pipelines import model

from pathways.compiler.schedule import SCHEDULES
from pathways.dialect.call_labels import Action


def rows(slices: int, chunks: int, microbatches: int) -> list[str]:
    return [" ".join(map(str, row)) for row in SCHEDULES["interleaved"](model(slices, chunks, microbatches))]


def test_the_order_of_two_slices_of_two_chunks() -> None:
    assert rows(2, 2, 4) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_the_order_of_three_slices_of_two_chunks() -> None:
    """Every microbatch of a round passes a chunk before the next chunk starts."""
    found = rows(3, 2, 3)
    assert found[0] == "0F0 0F1 0F2 3F0 3F1 3F2 3B0 3B1 3B2 0B0 0B1 0B2"
    assert found[2] == "2F0 2F1 2F2 5F0 5B0 5F1 5B1 5F2 5B2 2B0 2B1 2B2"


@pytest.mark.parametrize(("slices", "chunks", "rounds"), [(2, 2, 3), (4, 2, 2), (3, 3, 2), (4, 3, 4)])
def test_every_rank_warms_up_with_the_microbatches_of_the_paper(slices: int, chunks: int, rounds: int) -> None:
    """Narayanan et al., 2021, section 2.2: (chunks - 1) S + 2 (S - rank - 1) microbatches ahead of the first backward.

    With one less, a rank idles until it receives a gradient; with one more, it keeps more activations.
    """
    table = SCHEDULES["interleaved"](model(slices, chunks, rounds * slices))
    for rank, row in enumerate(table):
        ahead = (chunks - 1) * slices + 2 * (slices - rank - 1)
        first = next(i for i, action in enumerate(row) if action.kind == "B")
        assert first == ahead + 1  # plus the first F of the alternating part
        alternating = row[ahead : len(row) - ahead]
        assert [a.kind for a in alternating] == ["F", "B"] * (len(alternating) // 2)
        assert row[-1] == Action(rank, "B", rounds * slices - 1)
