"""Calls a compiled program directly if its arguments have the types and places of earlier calls. It only binds the
arguments, launches and wraps the results. `Program` and `Compiled` try it first.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pathways.api.array import Array
from pathways.api.process import process
from pathways.compiler.frontends.jax import compat
from pathways.dialect.jax_api import tree_util
from pathways.dialect.plan.nouns import Plan, Port
from pathways.runtime.client import debugging
from pathways.runtime.client.direct_call import DirectCall
from pathways.runtime.client_state import current_client
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run.background import Promise

MISS = object()
"""The result of a direct call that is not possible. It has had no effect; the call must take the general path."""


def await_callbacks_at_barrier() -> None:
    """Makes the next `jax.effects_barrier` of this thread wait for the callbacks of this client's runs."""
    client = current_client.get()
    wait = partial(process().controller.wait_for_callbacks, client)
    compat.add_to_effects_barrier(("pathways", client.label), wait)


def _has_host_values(leaf: Any, weak: bool) -> bool:
    """Whether a leaf is an array of JAX with values in this process, of a NumPy type (no PRNG key) and a weak type."""
    if not pjrt.is_array(leaf) or leaf.weak_type != weak:
        return False
    return isinstance(leaf.dtype, np.dtype) and leaf.is_fully_addressable and not leaf.is_deleted()


class DirectCalls:
    """Calls one plan directly. `ends` are the port and the sharding of each result."""

    def __init__(
        self,
        plan: Plan,
        direct: DirectCall,
        in_tree: Any,
        ends: Sequence[tuple[Port, Any]],
        unflatten: Callable[[Sequence[Any]], Any],
        *,
        is_leaf: bool,
    ) -> None:
        """`is_leaf`: the program returns one array, and no structure."""
        self._direct, self._in_tree, self._unflatten, self._ends = direct, in_tree, unflatten, ends
        self._weak = [port.weak for port in plan.inputs]
        self._count = len(self._weak)
        self._is_flat = in_tree == tree_util.tree_structure((0,) * self._count)
        self._only = ends[0] if is_leaf else None
        self.checks_types = direct.reads_all
        """Whether a direct call compares the types of all arguments with those of the plan."""

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Runs the plan on arguments by position; returns its results, or MISS."""
        if self._is_flat:
            return self.of_leaves(args) if len(args) == self._count else MISS
        leaves, tree = tree_util.tree_flatten(args)
        return self.of_leaves(leaves) if tree == self._in_tree else MISS

    def of_leaves(self, leaves: Sequence[Any]) -> Any:
        """Runs the plan on one value for each input; returns its results, or MISS."""
        if debugging.is_requested():
            return MISS
        given: list[Any] = []
        for leaf, weak in zip(leaves, self._weak, strict=True):
            if type(leaf) is Array:
                if leaf.weak_type != weak:
                    return MISS
                given.append(leaf.handle)
            elif type(leaf) is np.ndarray and not weak:
                given.append(leaf)
            elif _has_host_values(leaf, weak):
                given.append(np.asarray(leaf))
            else:
                return MISS
        handles = self._direct(given)
        if handles is None:
            return MISS
        if self._direct.callbacks is not None and isinstance(handles[0].buffer.array, Promise):
            await_callbacks_at_barrier()
        if self._only is not None:
            return Array(handles[0], *self._only)
        return self._unflatten([Array(h, p, s) for h, (p, s) in zip(handles, self._ends, strict=True)])
