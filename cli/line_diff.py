"""Compares long texts line by line. `pwc diff` calls it. The patience algorithm matches lines that occur once in both
texts and then extends the matches, so its time grows almost linearly. `difflib` alone compares only short rests.
"""

import difflib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

MAX_COMPARED_PAIRS = 1 << 12
"""The most pairs of lines that `difflib` compares where no line occurs once in both texts."""
STEPS_PER_LINE = 20
"""The lines that may be visited for each line of the texts. Ranges that are left then count as different."""
_Block: TypeAlias = tuple[int, int, int]
"""The positions at which equal lines begin in both texts, and their number."""


def unified_diff(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> Iterator[str]:
    """Yields the differences in the unified format, with one equal line around each; nothing for equal texts."""
    groups = list(_Patience(old, new).get_grouped_opcodes(1))
    if groups:
        yield from (f"--- {old_name}", f"+++ {new_name}")
    for group in groups:
        (_, i, _, k, _), (_, _, j, _, m) = group[0], group[-1]
        yield f"@@ -{_range(i, j)} +{_range(k, m)} @@"
        for kind, i, j, k, m in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[i:j])
            else:
                yield from (f"-{line}" for line in old[i:j])
                yield from (f"+{line}" for line in new[k:m])


def _range(start: int, stop: int) -> str:
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + bool(count)},{count}"


def moved_in(old: Sequence[str], new: Sequence[str]) -> int:
    """Returns how many lines are moved at most to make one text from the other, which has the same lines."""
    return len(old) - sum(block.size for block in _Patience(old, new).get_matching_blocks())


class _Patience(difflib.SequenceMatcher[str]):
    """Replaces how `difflib` finds equal lines, and keeps how it groups the differences."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, "", "")
        self.a, self.b = old, new

    def get_matching_blocks(self) -> list[difflib.Match]:
        numbers: dict[str, int] = {}
        a, b = ([numbers.setdefault(line, len(numbers)) for line in text] for text in (self.a, self.b))
        found: list[difflib.Match] = []
        for i, k, count in sorted(equal_blocks(a, b)):
            if found and (found[-1].a + found[-1].size, found[-1].b + found[-1].size) == (i, k):
                i, k, count = found[-1].a, found[-1].b, found[-1].size + count
                del found[-1]
            found.append(difflib.Match(i, k, count))
        return [*found, difflib.Match(len(a), len(b), 0)]


def equal_blocks(a: Sequence[int], b: Sequence[int]) -> Iterator[_Block]:
    """Yields blocks of equal lines that keep their order, in any order of the blocks. `a` and `b` number the lines."""
    waiting = [(0, len(a), 0, len(b))]
    steps = STEPS_PER_LINE * (len(a) + len(b))
    while waiting and steps > 0:
        i, j, k, m = waiting.pop()
        steps -= (j - i) + (m - k)
        begin = i
        while i < j and k < m and a[i] == b[k]:
            i, k = i + 1, k + 1
        if i > begin:
            yield begin, k - (i - begin), i - begin
        end = j
        while j > i and m > k and a[j - 1] == b[m - 1]:
            j, m = j - 1, m - 1
        if end > j:
            yield j, m, end - j
        if i == j or k == m:
            continue
        chain = _longest_chain(_unique_pairs(a, b, i, j, k, m))
        if chain:
            for p, q in chain:
                if p >= i and q >= k:  # otherwise the block of the pair before contains it
                    waiting.append((i, p, k, q))
                    i, k = p, q
                    while i < j and k < m and a[i] == b[k]:
                        i, k = i + 1, k + 1
                    yield p, q, i - p
            waiting.append((i, j, k, m))
        elif (pairs := (j - i) * (m - k)) <= MAX_COMPARED_PAIRS:
            steps -= pairs // 8  # difflib visits a pair faster than this loop a line
            short = difflib.SequenceMatcher(None, a[i:j], b[k:m], autojunk=False)
            yield from ((i + x, k + y, count) for x, y, count in short.get_matching_blocks() if count)


def _unique_pairs(a: Sequence[int], b: Sequence[int], i: int, j: int, k: int, m: int) -> list[tuple[int, int]]:
    """Finds the lines that occur once in both ranges, in the order of `a`."""
    once, other = _once(a, i, j), _once(b, k, m)
    return [(at, other[line]) for line, at in once.items() if at >= 0 and other.get(line, -1) >= 0]


def _once(lines: Sequence[int], start: int, stop: int) -> dict[int, int]:
    """Returns where each line of a range is; -1 if it occurs more than once."""
    found: dict[int, int] = {}
    for at in range(start, stop):
        found[lines[at]] = -1 if lines[at] in found else at
    return found


def _longest_chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns a longest subsequence whose second numbers increase (patience sorting)."""
    tails: list[int] = []
    last: list[int] = []
    """For each length, the pair that ends the chain with the smallest second number."""
    before: list[int] = []
    for n, (_, q) in enumerate(pairs):
        at = bisect_left(tails, q)
        tails[at : at + 1] = [q]
        last[at : at + 1] = [n]
        before.append(last[at - 1] if at else -1)
    chain: list[tuple[int, int]] = []
    n = last[-1] if last else -1
    while n >= 0:
        chain.append(pairs[n])
        n = before[n]
    return chain[::-1]
