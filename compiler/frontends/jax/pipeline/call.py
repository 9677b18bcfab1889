"""Reads the arguments of one call of a pipelined loss: their pytree leaves, and which of these arrays have a row for
each example. `pipeline.py` calls it first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline
from pathways.dialect.jax_api import tree_util


@dataclass(frozen=True, eq=False)
class LossCall:
    """The leaves of one call, and the positions and names of its arrays.

    For each argument outside the batch, `trees` holds the position of its first array and its pytree structure.
    """

    leaves: list[Any]
    tree: Any
    arrays: list[int]
    names: list[str]
    batch: list[int]
    """Positions in `arrays` of the leaves of the batch."""
    trees: list[tuple[int, Any]]

    def made_by(self, loss: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Calls a loss with the arguments of this call, with `arrays` in place of its own arrays."""
        args, kwargs = tree_util.tree_unflatten(self.tree, replaced(self.leaves, self.arrays, arrays))
        return loss(*args, **kwargs)

    def rows_of(self, arrays: Sequence[Any]) -> list[int]:
        """Returns the number of rows of each array of the batch that has rows."""
        return [int(arrays[p].shape[0]) for p in self.batch if arrays[p].shape]

    def one_microbatch(self, arrays: Sequence[Any], batch: Sequence[Any]) -> list[Any]:
        """Returns `arrays` with the batch leaves of one microbatch in place, then the extras of the microbatch."""
        count = len(self.batch)
        return [*replaced(arrays, self.batch, batch[:count]), *batch[count:]]


def read_call(name: str, argnums: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> LossCall:
    """Finds the arrays among the leaves of the arguments. Other leaves, such as functions, are part of the code.

    Raises PWC0112 if an argument of the batch is missing.
    """
    if missing := [i for i in argnums if not -len(args) <= i < len(args)]:
        have, rule = f"{len(args)} positional arguments", f"positional argument {missing[0]}, which is in batch_argnums"
        raise bad_pipeline(f"{name} was called without its batch", have, rule, "pass it so, or change batch_argnums")
    batched = batch_positions(argnums, len(args))
    found, tree = tree_util.tree_flatten_with_path((args, kwargs))
    leaves = [leaf for _, leaf in found]
    arrays = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    paths = [found[i][0] for i in arrays]
    owners = [p[1].idx if p[0].idx == 0 else -1 for p in paths]
    batch = [n for n, owner in enumerate(owners) if owner in batched]
    trees: list[tuple[int, Any]] = []
    for i, arg in enumerate(args):
        if i not in batched and i in owners:
            trees.append((owners.index(i), tree_util.tree_structure(arg)))
    return LossCall(leaves, tree, arrays, [tree_util.keystr(p[2:]) for p in paths], batch, trees)


def batch_positions(argnums: Sequence[int], count: int) -> set[int]:
    """Returns the positions of the batch among `count` arguments."""
    return {i % count for i in argnums}


def replaced(leaves: Sequence[Any], positions: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """Returns the leaves with `others` at `positions`."""
    found = list(leaves)
    for position, leaf in zip(positions, others, strict=True):
        found[position] = leaf
    return found
