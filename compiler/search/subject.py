"""Wraps the loss and the example arguments that a user gives to `pw.search`, so that the loss can be traced with any
batch size. No array values are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import AbstractMesh

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.devices import make_virtual_device_set
from pathways.compiler.frontends.jax.pipeline.graph import PARAMETER, Value
from pathways.compiler.frontends.jax.pipeline.shardings import Specs
from pathways.compiler.frontends.jax.pipeline.work import bytes_of
from pathways.dialect.choice import AXES, MODEL_AXIS
from pathways.dialect.diagnostics import Where
from pathways.dialect.jax_api import dtypes, make_jaxpr, numpy, tree_util

_any_jax: Any = jax


@dataclass(frozen=True, eq=False)
class SearchedLoss:
    """A loss and example arguments, of which only the shapes matter. The batch may have any number of rows."""

    name: str
    loss: Callable[..., Any]
    arguments: tuple[Any, ...]
    batch_argnums: tuple[int, ...] = (1,)
    where: Where | None = None

    @cached_property
    def _flat(self) -> tuple[list[tuple[Any, Any]], Any]:
        return tree_util.tree_flatten_with_path(self.arguments)

    @cached_property
    def arrays(self) -> list[int]:
        """Positions of leaves that are arrays; all other leaves are part of the code."""
        return [i for i, (_, x) in enumerate(self._flat[0]) if hasattr(x, "shape") and hasattr(x, "dtype")]

    @cached_property
    def names(self) -> list[str]:
        """The names of arrays inside their argument, as in `pw.pipeline`."""
        return [tree_util.keystr(self._flat[0][i][0][1:]) for i in self.arrays]

    @cached_property
    def avals(self) -> list[Any]:
        leaves = (self._flat[0][i][1] for i in self.arrays)
        return [compat.narrowed(compat.struct(x if _is_type(x) else compat.aval_of(x))) for x in leaves]

    @cached_property
    def data(self) -> frozenset[int]:
        """The arrays that belong to the batch."""
        batched = {i % len(self.arguments) for i in self.batch_argnums}
        return frozenset(n for n, i in enumerate(self.arrays) if self._flat[0][i][0][0].idx in batched)

    @property
    def rows(self) -> int:
        """Rows of the example's batch; 0 if it has none."""
        return next((int(self.avals[p].shape[0]) for p in sorted(self.data) if self.avals[p].shape), 0)

    @property
    def parameters(self) -> list[int]:
        return [i for i in range(len(self.arrays)) if i not in self.data]

    @property
    def parameter_bytes(self) -> int:
        return sum(bytes_of(self.avals[i]) for i in self.parameters)

    @property
    def parameter_count(self) -> int:
        return sum(_size(self.avals[i].shape) for i in self.parameters)

    @property
    def floating_argnums(self) -> tuple[int, ...]:
        """Arguments that are no batch and have only floating-point numbers: these are differentiated."""
        batched = {i % len(self.arguments) for i in self.batch_argnums}
        owners = [self._flat[0][i][0][0].idx for i in self.arrays]
        floats = [bool(dtypes.issubdtype(a.dtype, numpy.floating)) for a in self.avals]
        mixed = {owner for owner, is_float in zip(owners, floats, strict=True) if not is_float}
        return tuple(i for i in dict.fromkeys(owners) if i not in mixed and i not in batched)

    def ask(self, param_specs: Any) -> Callable[[int], int | None]:
        """Returns a function from a parameter to the dimension that the user's specs split over the model axis."""
        trees: list[tuple[int, Any]] = []
        owners = [self._flat[0][i][0][0].idx for i in self.arrays]
        for i, argument in enumerate(self.arguments):
            if i in owners and owners.index(i) not in self.data:
                trees.append((owners.index(i), tree_util.tree_structure(argument)))
        specs = Specs(param_specs, self.names, self.avals, trees)
        mesh = make_virtual_device_set().add_slice(devices=1).mesh(AXES, (1, 1))

        def dimension(leaf: int) -> int | None:
            spec: Any = specs.of(Value(self.avals[leaf], PARAMETER, argument=leaf), mesh, 0).spec
            return next((i for i, axes in enumerate(spec) if axes == MODEL_AXIS or MODEL_AXIS in (axes or ())), None)

        return dimension

    def tokens(self, batch: int) -> int:
        """Returns the number of integers in the largest leaf of the batch; 0 if no leaf has several of them a row."""
        counted = [self.avals[p] for p in self.data if dtypes.issubdtype(self.avals[p].dtype, numpy.integer)]
        return batch * max((_size(a.shape[1:]) for a in counted if len(a.shape) > 1), default=0)

    def types_at(self, rows: int) -> list[Any]:
        """Returns the types of all arrays for a batch of `rows` rows."""
        return [self._at(a, rows) if i in self.data else a for i, a in enumerate(self.avals)]

    def arguments_at(self, rows: int) -> tuple[Any, ...]:
        """Returns the arguments, as types, for a batch of `rows` rows."""
        return self._arguments(self.types_at(rows))

    def jaxpr_at(self, rows: int) -> Any:
        """Traces the loss for a batch of `rows` rows. Axes of meshes have their names, and sizes without meaning."""

        def flat(*arrays: Any) -> list[Any]:
            return tree_util.tree_leaves(self.loss(*self._arguments(arrays)))

        with _any_jax.sharding.use_abstract_mesh(AbstractMesh((1,) * len(AXES), AXES)):
            return make_jaxpr(flat)(*self.types_at(rows))

    def _arguments(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        leaves = [leaf for _, leaf in self._flat[0]]
        for i, array in zip(self.arrays, arrays, strict=True):
            leaves[i] = array
        return tree_util.tree_unflatten(self._flat[1], leaves)

    def _at(self, aval: Any, rows: int) -> Any:
        if not aval.shape or not self.rows:
            return aval
        scaled = int(aval.shape[0]) * rows // self.rows
        return jax.ShapeDtypeStruct((scaled, *aval.shape[1:]), aval.dtype)


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
