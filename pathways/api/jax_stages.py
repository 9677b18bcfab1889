"""Defines the members that traced, lowered and compiled programs share with those of `jax.stages`: types of arguments
and results, IR, text of the code. `program.py` and `stages.py` inherit from these classes.

Nothing here compiles or runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax

from pathways.api.fetched import key_dims, user_dtype
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.jax_api import tree_util
from pathways.dialect.mlir import Module, from_portable, make_context, pretty
from pathways.dialect.plan.leaves import leaf_ports
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.trees import Tree, build_tree
from pathways.dialect.user_line import caller


class HasTypes:
    """A stage of a program that knows the types of its arguments and results."""

    _in_tree: Any
    _in_types: tuple[jax.ShapeDtypeStruct, ...]
    _out_tree: Any
    _out_types: tuple[jax.ShapeDtypeStruct, ...]

    @property
    def in_tree(self) -> Any:
        """Returns the structure of `(args, kwargs)`. Arguments passed by name are among `args`."""
        return tree_util.treedef_tuple([self._in_tree, tree_util.tree_structure({})])

    @property
    def out_tree(self) -> Any:
        """Returns the structure of the result."""
        return self._out_tree

    @property
    def in_avals(self) -> Any:
        """Returns the types of the arguments, in the structure of `in_tree`."""
        return tree_util.tree_unflatten(self.in_tree, self._in_types)

    @property
    def out_info(self) -> Any:
        """Returns the shapes and element types of the result, in its structure."""
        return tree_util.tree_unflatten(self._out_tree, self._out_types)


@dataclass(frozen=True, eq=False)
class TracedProgram(HasTypes):
    """A program as traced by JAX. `lower()` returns its `Lowered`."""

    jaxpr: Any
    fun_name: str
    _in_tree: Any
    _in_types: tuple[jax.ShapeDtypeStruct, ...]
    _out_tree: Any
    _out_types: tuple[jax.ShapeDtypeStruct, ...]
    lower: Callable[[], Any]


class LoweredAsInJax(HasTypes):
    """The members of a lowered program that `jax.stages.Lowered` also has."""

    module: Module

    @property
    def out_info(self) -> Any:
        """Returns the shapes and element types of the result, in its structure; as in JAX, no weak types."""
        types = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in self._out_types]
        return tree_util.tree_unflatten(self._out_tree, types)

    def compiler_ir(self, dialect: str | None = None) -> Module:
        """Returns the IR of phase `trace`, whose computations are StableHLO. Raises PWC0104 for other dialects."""
        if dialect not in (None, "stablehlo"):
            have, rule = f"dialect={dialect!r}", "stablehlo"
            problem, advice = "a program has no IR in this dialect", "compile().as_text() returns the compiled code"
            error = BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller())
            raise PathwaysError(error)
        return self.module

    def cost_analysis(self) -> dict[str, float]:
        """Compiles the program. Returns the result of `Compiled.cost_analysis`."""
        return cast("Any", self).compile().cost_analysis()


class CompiledAsInJax:
    """The members of a compiled program that `jax.stages.Compiled` also has."""

    plan: Plan
    _in_tree: Any
    _out_tree: Any

    @property
    def in_avals(self) -> Any:
        """Returns the types of `(args, kwargs)`. Arguments passed by name are among `args`."""
        return _filled(self._in_tree, self.plan.in_tree, self.plan.inputs), {}

    @property
    def out_info(self) -> Any:
        """Returns the shapes and element types of the result, in its structure."""
        return _filled(self._out_tree, self.plan.out_tree, self.plan.results)

    @property
    def in_tree(self) -> Any:
        """Returns the structure of `in_avals`."""
        return tree_util.tree_structure(self.in_avals)

    @property
    def out_tree(self) -> Any:
        """Returns the structure of the result."""
        return tree_util.tree_structure(self.out_info)

    def as_text(self) -> str:
        """Returns the code of the computations as StableHLO, one module for each, in the order of the plan."""
        context = make_context()
        return "\n".join(pretty(from_portable(computation.module, context)) for computation in self.plan.computations)


def _filled(treedef: Any, tree: Tree, ports: Sequence[Port]) -> Any:
    """Fills the types of ports into a program's structure, or into the structure stored in a plan file."""
    leaves = leaf_ports(ports)
    types = [jax.ShapeDtypeStruct(p.type.shape[: len(p.type.shape) - key_dims(p)], user_dtype(p)) for p in leaves]
    return build_tree(tree, types) if treedef is None else tree_util.tree_unflatten(treedef, types)
