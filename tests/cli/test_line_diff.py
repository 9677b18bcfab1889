"""A textual diff turns the first text into the second, and finds few differences."""

import random
from collections.abc import Sequence

import pytest

from pathways.cli.line_diff import equal_blocks, moved_in, unified_diff


def patched(old: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Applies a diff, and checks each line that it expects in the old text."""
    found: list[str] = []
    at = 0
    for line in lines[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (count != "0")
            found += old[at:begin]
            at = begin
            continue
        if line[0] != "+":
            assert old[at] == line[1:]
            at += 1
        if line[0] != "-":
            found.append(line[1:])
    return [*found, *old[at:]]


def drawn(rng: random.Random) -> tuple[list[str], list[str]]:
    """Draws a text, and one with some of its lines deleted, inserted or shuffled; few kinds of lines, or many."""
    kinds = rng.choice((3, 6, 15, 150))
    old = [f"line {rng.randrange(kinds)}" for _ in range(rng.randrange(40))]
    new = list(old)
    for _ in range(rng.randrange(6)):
        if new and rng.random() < 0.5:
            del new[rng.randrange(len(new))]
        else:
            new.insert(rng.randrange(len(new) + 1), f"line {rng.randrange(kinds)}")
    if rng.random() < 0.2:
        rng.shuffle(new)
    return old, new


def test_a_diff_of_random_texts_gives_the_second_text() -> None:
    rng = random.Random(0)
    for _ in range(500):
        old, new = drawn(rng)
        lines = list(unified_diff(old, new, "a", "b"))
        assert patched(old, lines) == new if lines else old == new


def nested(depth: int, noise: str) -> list[str]:
    """Draws a text in which each level of matches uncovers one more."""
    return [f for k in range(depth, 0, -1) for f in (f"v{k}", f"{noise}{k}a", f"v{k + 1}", f"{noise}{k}b")]


def test_a_text_that_takes_too_many_steps_is_compared_less_exactly() -> None:
    old, new = nested(2_000, "A"), nested(2_000, "B")
    assert patched(old, list(unified_diff(old, new, "a", "b"))) == new
    visited = sum(1 for _ in equal_blocks(*([hash(line) for line in text] for text in (old, new))))
    assert visited < 2_000, "the rest counts as different"


def test_a_moved_block_is_shown_once() -> None:
    old = [f"line {number}" for number in range(1_000)]
    new = [*old[:100], *old[110:900], *old[100:110], *old[900:]]
    lines = list(unified_diff(old, new, "a", "b"))
    assert sum(line.startswith("-") for line in lines[2:]) == sum(line.startswith("+") for line in lines[2:]) == 10
    assert moved_in(old, new) == 10 and moved_in(old, old) == 0


@pytest.mark.parametrize("many", [1, 60_000])
def test_texts_of_equal_lines_are_compared_without_many_steps(many: int) -> None:
    """No line occurs once, so nothing can be matched but the ends."""
    lines = list(unified_diff(["same"] * many, ["same"] * (many + 1), "a", "b"))
    assert [line for line in lines[2:] if line[0] == "+"] == ["+same"]
    assert patched(["same"] * many, lines) == ["same"] * (many + 1)
