"""Describes which axes of an array number the examples of a batch, and in which order. Reshapes and transposes change
this layout, and vmap adds axes. All functions of this package that analyze an operation use it.

An example's number is written in digits, the most significant first. Reshapes, transposes and vmaps move the digits.
Each quantity is a pair: in the trace of the whole batch, and in the trace of one microbatch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = tuple[Shape, Shape]
"""The shape of one value in both traces."""
Layout: TypeAlias = tuple["Digit", ...]
BOTH = (0, 1)
"""Positions in each pair: the whole batch, one microbatch."""


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of an example's number: `index[dim] // inner % n`, in both traces.

    A dimension below zero is not an axis of the array. It is the iteration of a loop over examples, or a mesh axis.
    """

    dim: int
    inner: tuple[int, int]
    n: tuple[int, int]

    @property
    def grows(self) -> bool:
        """Whether the digit has more values in the whole batch than in a microbatch."""
        return self.n[0] != self.n[1]

    @property
    def block(self) -> tuple[int, int]:
        """Returns the number of consecutive indices that the digit runs through."""
        return self.inner[0] * self.n[0], self.inner[1] * self.n[1]


def merged(digits: Sequence[Digit]) -> Layout:
    """Joins adjacent digits of one axis if one continues the other."""
    out: list[Digit] = []
    for digit in digits:
        last = out[-1] if out else None
        if last is not None and last.dim == digit.dim >= 0 and last.inner == digit.block:
            out[-1] = Digit(digit.dim, digit.inner, (last.n[0] * digit.n[0], last.n[1] * digit.n[1]))
        else:
            out.append(digit)
    return tuple(out)


def _placed(stride: int, count: int, shape: Shape) -> list[tuple[int, int, int]] | None:
    """Returns `count` steps of a stride in a shape: (dim, inner, n), least digit first; None if they match no axes."""
    out: list[tuple[int, int, int]] = []
    while count > 1:
        below = 1
        for dim in reversed(range(len(shape))):
            if below <= stride < below * shape[dim]:
                break
            below *= shape[dim]
        else:
            return None
        above = below * shape[dim]
        if stride % below or above % stride:
            return None
        taken = min(count, above // stride)
        if count % taken or (taken < count and stride * taken != above):
            return None
        out.append((dim, stride // below, taken))
        stride, count = stride * taken, count // taken
    return out


def reshaped(digits: Layout, old: Shapes, new: Shapes) -> Layout | None:
    """Returns the layout after a reshape; None if the examples then lie along no axes."""
    out: list[Digit] = []
    for digit in digits:
        if digit.dim < 0:
            out.append(digit)
            continue
        whole, part = (_placed(digit.inner[t] * math.prod(old[t][digit.dim + 1 :]), digit.n[t], new[t]) for t in BOTH)
        if whole is None or part is None:
            return None
        if len(whole) == len(part) + 1:  # a microbatch is one group: its digit has one value
            dim = whole[-1][0]
            below = math.prod(new[1][dim + 1 :])
            end = digit.inner[1] * math.prod(old[1][digit.dim + 1 :]) * digit.n[1]
            if end % below == 0:
                part = [*part, (dim, end // below, 1)]
        if [p[0] for p in whole] != [p[0] for p in part]:
            return None
        pairs = reversed(list(zip(whole, part, strict=True)))
        out += [Digit(a[0], (a[1], b[1]), (a[2], b[2])) for a, b in pairs]
    return merged(out)


def moved(digits: Layout, where: Mapping[int, int]) -> Layout | None:
    """Returns the layout with its axes renamed; None if an axis with a digit is not in `where`."""
    if any(d.dim >= 0 and d.dim not in where for d in digits):
        return None
    return tuple(d if d.dim < 0 else replace(d, dim=where[d.dim]) for d in digits)


def common(layouts: Sequence[Layout]) -> Layout | None:
    """Returns the finest layout on which all layouts agree; None if there is none.

    A group with equally many rows in both traces may stand for its rows. The digits within the group are then left out.
    """
    out = layouts[0]
    for other in layouts[1:]:
        if out != other:
            joined = _common_of_two(out, other)
            if joined is None:
                return None
            out = joined
    return out


def _common_of_two(a: Layout, b: Layout) -> Layout | None:
    made: list[Digit] = []
    for x, y in zip(a, b, strict=False):
        if x == y:
            made.append(x)
            continue
        if x.dim != y.dim or x.block != y.block:
            return None
        coarse = x if x.inner[0] > y.inner[0] else y
        if not coarse.grows:
            return None
        return (*made, coarse)
    rest = (*a[len(made) :], *b[len(made) :])
    if any(d.grows for d in rest) or not any(d.grows for d in made):
        return None
    return tuple(made)


def by_group(digits: Layout) -> Layout:
    """Returns the layout without the digits that only count the rows within a group."""
    last = max((i for i, d in enumerate(digits) if d.grows), default=len(digits) - 1)
    return digits[: last + 1]


def numbering_dims(digits: Layout) -> set[int]:
    return {d.dim for d in digits}


def grown_axes(shapes: Shapes) -> list[int]:
    """Returns the axes that are longer in the whole batch."""
    return [axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]


def idle_axes(digits: Layout, shapes: Shapes) -> set[int]:
    """Returns the axes that are longer in the whole batch, but number no examples."""
    return set(grown_axes(shapes)) - {d.dim for d in digits if d.grows}
