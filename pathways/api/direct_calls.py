"""Calls a compiled program directly if its arguments have the types and places of earlier calls. It only binds the
arguments, launches and wraps the results. `Program` and `Compiled` try it first.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pathways.api.array import Array
from pathways.api.process import process
from pathways.compiler.frontends.jax import compat
from pathways.dialect.jax_api import tree_util
from pathways.dialect.plan.nouns import Port
from pathways.runtime.client import debugging
from pathways.runtime.client.direct_call import DirectCall
from pathways.runtime.client_state import current_client
from pathways.runtime.host.run.background import Promise

MISS = object()
"""The result of a direct call that is not possible. It has had no effect; the call must take the general path."""


def await_callbacks_at_barrier() -> None:
    """Makes the next `jax.effects_barrier` of this thread wait for the callbacks of this client's runs."""
    client = current_client.get()
    wait = partial(process().controller.wait_for_callbacks, client)
    compat.add_to_effects_barrier(("pathways", client.label), wait)


class DirectCalls:
    """Calls one plan directly. `ends` are the port and the sharding of each result."""

    def __init__(
        self,
        direct: DirectCall,
        in_tree: Any,
        ends: Sequence[tuple[Port, Any]],
        unflatten: Callable[[Sequence[Any]], Any],
        *,
        is_leaf: bool,
    ) -> None:
        """`is_leaf`: the program returns one array, and no structure."""
        self._direct, self._in_tree, self._unflatten, self._ends = direct, in_tree, unflatten, ends
        self._count = in_tree.num_leaves
        is_flat = in_tree == tree_util.tree_structure((0,) * self._count)
        self.of_arguments: Callable[[tuple[Any, ...]], Any] = self.of_leaves if is_flat else self._of_trees
        """Runs the plan on arguments by position; returns its results, or MISS."""
        self._only = ends[0] if is_leaf else None
        self.checks_types = direct.reads_all
        """Whether a direct call compares the types of all arguments with those of the plan."""

    def _of_trees(self, args: tuple[Any, ...]) -> Any:
        leaves, tree = tree_util.tree_flatten(args)
        return self.of_leaves(leaves) if tree == self._in_tree else MISS

    def of_leaves(self, leaves: Sequence[Any]) -> Any:
        """Runs the plan on one value for each input; returns its results, or MISS."""
        if len(leaves) != self._count or debugging.is_requested():
            return MISS
        handles = self._direct(leaves, Array)
        if handles is None:
            return MISS
        if self._direct.callbacks is not None and isinstance(handles[0].buffer.array, Promise):
            await_callbacks_at_barrier()
        if self._only is not None:
            return Array(handles[0], *self._only)
        return self._unflatten([Array(h, p, s) for h, (p, s) in zip(handles, self._ends, strict=True)])
