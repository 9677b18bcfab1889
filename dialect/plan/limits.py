"""Refuses plans that would take too much time or memory to read or show, because a small file can state huge numbers.
`check.py` calls it for every plan. Pure functions.

`pwc inspect` calls it, too, before it lists memory. `check.py` rejects what is wrong; this module rejects what is too
large. Each amount is a product of several numbers, so no array in the file is that long.
"""

from collections.abc import Iterator

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import PlanTooLarge
from pathways.dialect.plan.instructions import Branch, Copy, Recv, Send
from pathways.dialect.plan.memory import classes_of
from pathways.dialect.plan.nouns import BufferKind, Layout, Plan
from pathways.dialect.reshard import max_pieces

MAX_BODIES = 1 << 12
"""The most bodies: each is checked as a plan together with the bodies before it."""
MAX_NAME_CHARACTERS = 1 << 26
"""The most characters in the names of all buffers: a group has one name, and each of its buffers gets a copy."""
MAX_TRANSFER_PIECES = 1 << 23
"""The most pieces of all different transfers: a piece is the region that one shard sends to another."""
MAX_MEMORY_CHANGES = 1 << 26
"""The most changes of device memory: the sum over all buffers of the device classes of their meshes."""
MAX_OWNERS = 1 << 24
"""The most owners of memory, summed over all steps."""


def check_amounts(plan: Plan, path: str) -> None:
    """Raises PWC0613 for a plan, valid or not, that would exhaust the memory of a process that only reads it."""
    names = 0
    for streams in plan.all_streams:
        for stream in streams:
            names += sum(len(group.name) * len(group.kinds) for group in stream.groups)
            for i in stream.instructions:
                if isinstance(i, Branch):
                    _check(path, f"bodies of {i.name}", len(i.bodies), MAX_BODIES)
    _check(path, "bodies", len(plan.bodies), MAX_BODIES)
    _check(path, "characters in the names of buffers", names, MAX_NAME_CHARACTERS)


def check_work(plan: Plan, path: str) -> None:
    """Raises PWC0613 for a valid plan that would take too long to load or to show."""
    pieces = sum(max_pieces(shape, plan.sharding(a), plan.sharding(b)) for shape, a, b in set(_moves(plan)))
    _check(path, "pieces in transfers", pieces, MAX_TRANSFER_PIECES)
    classes = [len(c) for c in classes_of(plan.meshes)]
    changes = 0
    for streams in plan.all_streams:
        for stream in streams:
            changes += sum(classes[stream.kinds[k].layout.mesh] for group in stream.groups for k in group.kinds)
    _check(path, "changes of memory", changes, MAX_MEMORY_CHANGES)


def check_memory_shown(plan: Plan, path: str) -> None:
    """Raises PWC0613 if the memory of a plan, by owner at every step, is too large to list. The plan can still run.

    A pipeline of n microbatches has n owners and n times as many steps.
    """
    shown = sum(len({g.owner for g in s.groups}) * len(s.instructions) for s in plan.streams)
    _check(path, "owners of memory at all steps", shown, MAX_OWNERS)


_Move = tuple[tuple[int, ...], Layout, Layout]
"""The shape of an array that moves, its layout before, and its layout after."""


def _moves(plan: Plan) -> Iterator[_Move]:
    """Yields the transfers and copies of a valid plan, in which every channel has two ends."""
    for streams in plan.all_streams:
        sent: dict[int, BufferKind] = {}
        for stream in streams:
            sent.update((i.channel, stream.kind_of[i.slot]) for i in stream.instructions if isinstance(i, Send))
        for stream in streams:
            for i in stream.instructions:
                if isinstance(i, Recv | Copy):
                    here = sent[i.channel] if isinstance(i, Recv) else stream.kind_of[i.source]
                    there = stream.kind_of[i.slot if isinstance(i, Recv) else i.target]
                    yield here.type.shape, here.layout, there.layout


def _check(path: str, what: str, have: int, most: int) -> None:
    if have > most:
        raise PathwaysError(PlanTooLarge(path=path, what=what, amount=f"{have:,}", most=f"{most:,}"))
