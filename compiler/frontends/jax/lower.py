"""Lowers each distinct computation of a program to a StableHLO module, exactly once. Equal computations on different
slices share one module. `emit.py` calls it.

Calls of the same traced function, on any slice, and groups with the same structure are recognized before lowering. The
builder compares the remaining computations by content, so that equal stages share one module.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from jax.sharding import Mesh, NamedSharding

from pathways.compiler.frontends.builder import CalledComputation, symbol_of
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.devices import device_grid, lowering_for
from pathways.compiler.frontends.jax.graph import Call, TracedValue
from pathways.compiler.frontends.jax.groups import Group
from pathways.compiler.frontends.jax.hoist import apply, hoisted_consts
from pathways.compiler.frontends.jax.meshes import JaxSharding, slice_mesh
from pathways.compiler.frontends.jax.structure import Structures
from pathways.dialect.host_callbacks import register_callbacks, write_callbacks
from pathways.dialect.jax_api import jit, set_mesh
from pathways.dialect.mlir import Module, bytecode, ir, parse, text
from pathways.dialect.rewrite_locations import rewrite_locations
from pathways.dialect.sources import Sources
from pathways.dialect.user_line import is_users


class Lowering:
    """Lowers computations for one platform, each once. `dialect` is JAX's name for the platform: cuda, rocm."""

    def __init__(self, platform: str, dialect: str, sources: Sources) -> None:
        self.platform = platform
        self.sources = sources
        self.dialect = dialect
        self._by_key: dict[Any, CalledComputation] = {}
        self._by_content: dict[str, bytes] = {}
        self._alive: list[Any] = []
        self._structures = Structures()
        self.seconds = 0.0
        """Time spent in JAX's own lowering."""

    def of(self, unit: Call | Group) -> CalledComputation:
        """Returns the computation of a call or a group; its bytecode has locations."""
        return self._group(unit) if isinstance(unit, Group) else self._call(unit)

    def _call(self, call: Call) -> CalledComputation:
        callee = call.callee
        key = (call.mesh.spec, callee)  # the jaxpr determines the types; equal callees are one object
        if key not in self._by_key:
            self._alive.append(callee.jaxpr)
            sides = (tuple(map(_on_its_slice, s)) for s in (callee.in_shardings, callee.out_shardings))
            same = ("call", call.mesh.spec, id(callee.jaxpr), callee.name, *sides)
            if same not in self._by_key:
                self._by_key[same] = self._lower(callee.name, *_function_of(call), call.inputs)
            self._by_key[key] = self._by_key[same]
        return self._by_key[key]

    def _group(self, group: Group) -> CalledComputation:
        key = self._structures.of(group)
        if key not in self._by_key:
            self._alive.append(group)
            self._by_key[key] = self._lower(
                group.name, _function_of_group(group), {}, group.inputs, _explicit_mesh(group)
            )
        return self._by_key[key]

    def _lower(
        self,
        name: str,
        function: Callable[..., Any],
        options: dict[str, Any],
        inputs: list[TracedValue],
        around: Any = None,
    ) -> CalledComputation:
        symbol = symbol_of(name)
        function.__name__ = symbol
        start = time.perf_counter()
        jitted = jit(function, keep_unused=True, **options)
        with nullcontext() if around is None else set_mesh(around):
            traced = jitted.trace(*(compat.struct(v.aval) for v in inputs))
            token = lowering_for.set(self.dialect)
            try:
                lowered: Any = traced.lower(lowering_platforms=(self.dialect,))
            finally:
                lowering_for.reset(token)
        module: Module = lowered.compiler_ir("stablehlo")
        self.seconds += time.perf_counter() - start
        with module.context:
            module.operation.attributes["sym_name"] = ir.StringAttr.get("computation")
            write_callbacks(module.operation, register_callbacks(compat.host_callbacks(lowered), self))
        return CalledComputation(symbol, self._written(module))

    def _written(self, module: Module) -> bytes:
        """Returns the module's bytecode with the user's lines.

        Equal modules, as stages often are, share the bytecode of the first.
        """
        printed = module.operation.get_asm()
        digest = hashlib.sha256(printed.encode()).hexdigest()
        if digest not in self._by_content:
            rewrite_locations(module.operation, lambda file: self.sources.stored(file) if is_users(file) else None)
            if " applies " in printed:  # short reductions: their printed form loses the locations inside
                module = parse(text(module), module.context)
            self._by_content[digest] = bytecode(module.operation)
        return self._by_content[digest]


def _on_its_slice(sharding: JaxSharding) -> Any:
    """Returns a sharding without its slice. Stages of one function differ only in their slices."""
    if isinstance(sharding, NamedSharding):
        return sharding.spec, slice_mesh(sharding.mesh, "a sharding", None).spec
    return None if compat.is_unspecified(sharding) else sharding


def _function_of(call: Call) -> tuple[Callable[..., Any], dict[str, Any]]:
    callee = call.callee
    n_consts = len(hoisted_consts(callee.jaxpr))

    def function(*operands: Any) -> list[Any]:
        return apply(callee.jaxpr, operands[:n_consts], operands[n_consts:])

    ins = tuple(None if compat.is_unspecified(s) else s for s in callee.in_shardings)
    outs = [None if compat.is_unspecified(s) else s for s in callee.out_shardings]
    if not any(s is not None for s in (*ins, *outs)):
        return function, {}
    return function, {"in_shardings": (None,) * n_consts + ins, "out_shardings": outs}


def _function_of_group(group: Group) -> Callable[..., Any]:
    def function(*given: Any) -> list[Any]:
        env: dict[TracedValue, Any] = dict(zip(group.inputs, given, strict=True))
        for loose in group.operations:
            for eqn, operands, outputs in loose.equations():
                values = [env[o] if isinstance(o, TracedValue) else compat.as_literal_value(o) for o in operands]
                env.update(zip(outputs, compat.bind(eqn, values), strict=True))
        return [env[v] for v in group.outputs]

    return function


def _explicit_mesh(group: Group) -> Any:
    """Returns the mesh that a group's operations name in their types, to lower the group under; usually None."""
    for loose in group.operations:
        for value in loose.outputs:
            named: Any = getattr(getattr(value.aval, "sharding", None), "mesh", None)
            if named is not None and not named.empty and tuple(named.axis_sizes) == group.mesh.spec.shape:
                devices = [group.mesh.slice.devices[i] for i in group.mesh.spec.devices]
                return Mesh(device_grid(devices, named.axis_sizes), named.axis_names, axis_types=named.axis_types)
    return None
