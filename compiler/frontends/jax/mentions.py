"""Finds which slices a jaxpr names in shardings, at any depth, and whether it contains placed jits, moves or callbacks.
`flatten.py` uses this to decide if an equation stays whole or is inlined.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from jax.sharding import Mesh, NamedSharding

from pathways.compiler.frontends.jax.compat import (
    Eqn,
    body_of,
    func_source,
    is_unspecified,
    sub_jaxprs,
    where_of_equation,
)
from pathways.compiler.frontends.jax.meshes import SliceMesh, ambient, sharding_from_jax, slice_mesh, slices_of
from pathways.dialect.diagnostics import PathwaysError, Where

CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print", "python_callback"})
JITS = frozenset({"jit", "pjit"})
MOVES = frozenset({"device_put", "reshard", "sharding_constraint"})


@dataclass
class Mentions:
    """The placements inside a jaxpr or equation: `meshes` by slice number; `calls`: has a placed jit or a move.

    `callback` is the first host callback. `moves`: has a move. `mixed`: has two meshes over one slice. `chooses`: has a
    `cond` around something placed. `strayed`: has a jit that has lost its shardings, see `MentionFinder`.
    """

    meshes: dict[int, SliceMesh] = field(default_factory=dict[int, SliceMesh])
    calls: bool = False
    moves: bool = False
    mixed: bool = False
    chooses: bool = False
    strayed: bool = False
    callback: tuple[str, Where | None] | None = None

    @property
    def is_of_one_mesh(self) -> bool:
        """Whether an equation with this inside can be one computation: its calls are all on one mesh."""
        return len(self.meshes) == 1 and not (self.moves or self.mixed or self.strayed)

    @property
    def opens(self) -> bool:
        """Whether an equation with this inside must be inlined: something inside has a placement of its own."""
        return bool(self.meshes) or self.strayed

    def add(self, other: "Mentions") -> None:
        for number, mesh in other.meshes.items():
            self.mixed |= self.meshes.setdefault(number, mesh) != mesh
        self.moves = self.moves or other.moves
        self.mixed = self.mixed or other.mixed
        self.chooses = self.chooses or other.chooses
        self.calls = self.calls or other.calls
        self.strayed = self.strayed or other.strayed
        self.callback = self.callback or other.callback


@contextlib.contextmanager
def located(eqn: Eqn) -> Generator[None]:
    """Adds the line of the user's call to errors from inside a library's own function, such as pmap's."""
    try:
        yield
    except PathwaysError as error:
        if error.diagnostic.where is not None:
            raise
        raise PathwaysError(replace(error.diagnostic, where=where_of_equation(eqn))) from None


FunctionKey: TypeAlias = tuple[str, str]
"""The name of a traced function and its definition. Unlike shardings, they survive differentiation."""


def function_of(eqn: Eqn) -> FunctionKey | None:
    source = func_source(eqn.params["jaxpr"])
    return (eqn.params["name"], source) if source else None


class MentionFinder:
    """Finds mentions, once per jaxpr and equation. Keeps both alive, since it identifies them by `id`.

    Differentiating a scan hoists values that depend on loop constants out of each jit of the body. A jit that was
    placed by the sharding of its weights alone then stays in the loop without any sharding. Such a *strayed* jit is
    recognized by its function. `places` lists the meshes on which each function is placed anywhere in the program.
    """

    def __init__(self, program: Any) -> None:
        self._known: dict[int, tuple[Any, Mentions]] = {}
        self._own: dict[int, tuple[Eqn, Mentions]] = {}
        self._whole: dict[int, tuple[Eqn, Mentions]] = {}
        self.places: dict[FunctionKey, dict[SliceMesh, None]] = {}
        self._unplaced: set[FunctionKey] = set()
        self._collect(program, set())
        self.has_strays = not self._unplaced.isdisjoint(self.places)
        """Whether the program has a function that is placed in one call and unplaced in another."""

    def _collect(self, jaxpr: Any, seen: set[int]) -> None:
        if id(jaxpr) in seen:
            return
        seen.add(id(jaxpr))
        for eqn in body_of(jaxpr).eqns:
            if eqn.primitive.name in JITS and (function := function_of(eqn)) is not None:
                meshes = jit_meshes(eqn).values()
                for mesh in meshes:
                    self.places.setdefault(function, {})[mesh] = None
                if not meshes:
                    self._unplaced.add(function)
            with located(eqn):
                for inner in sub_jaxprs(eqn):
                    self._collect(inner, seen)

    def _concrete(self, mesh: Any) -> Mesh | None:
        """Returns the mesh with devices. If a shard_map names no devices, uses the `jax.set_mesh` around the trace."""
        if isinstance(mesh, Mesh):
            return mesh
        around: Any = ambient()
        same = around is not None and around.abstract_mesh.shape_tuple == mesh.shape_tuple
        return around if same else None

    def in_jaxpr(self, jaxpr: Any) -> Mentions:
        if id(jaxpr) not in self._known:
            found = Mentions()
            for eqn in body_of(jaxpr).eqns:
                found.add(self.in_eqn(eqn))
            self._known[id(jaxpr)] = jaxpr, found
        return self._known[id(jaxpr)][1]

    def in_eqn(self, eqn: Eqn) -> Mentions:
        """Finds the mentions of an equation at any depth."""
        if id(eqn) not in self._whole:
            with located(eqn):
                found = Mentions()
                found.add(self.own(eqn))
                for jaxpr in sub_jaxprs(eqn):
                    found.add(self.in_jaxpr(jaxpr))
            found.chooses |= eqn.primitive.name == "cond" and bool(found.meshes)
            self._whole[id(eqn)] = eqn, found
        return self._whole[id(eqn)][1]

    def is_one_computation(self, eqn: Eqn) -> bool:
        """Whether control flow can be one computation: its calls are on one mesh, and no branch is inside."""
        return self.in_eqn(eqn).is_of_one_mesh and not any(self.in_jaxpr(j).chooses for j in sub_jaxprs(eqn))

    def own(self, eqn: Eqn) -> Mentions:
        """Finds the mentions of the equation itself, without its inner jaxprs."""
        if id(eqn) not in self._own:
            self._own[id(eqn)] = eqn, self._find(eqn)
        return self._own[id(eqn)][1]

    def _find(self, eqn: Eqn) -> Mentions:
        name: str = eqn.primitive.name
        found = Mentions()
        if name in CALLBACKS or "callback" in name:
            found.callback = name, where_of_equation(eqn)
        if name in JITS:
            found.meshes = jit_meshes(eqn)
            found.calls = bool(found.meshes)
            found.strayed = not found.meshes and function_of(eqn) in self.places
        elif name == "shard_map" and (concrete := self._concrete(eqn.params["mesh"])) is not None:
            mesh = slice_mesh(concrete, "a shard_map", where_of_equation(eqn))
            found.meshes = {mesh.slice.number: mesh}
        elif name in MOVES:
            found.meshes = {m.slice.number: m for m in move_meshes(eqn)}
            found.calls = found.moves = name != "sharding_constraint" and bool(found.meshes)
        return found


def jit_meshes(eqn: Eqn) -> dict[int, SliceMesh]:
    """Finds the slices that a jit's own shardings, or else the mesh around it, name."""
    where, params = where_of_equation(eqn), eqn.params
    what = f"the call of {params['name']}"
    found = slices_of((*params["in_shardings"], *params["out_shardings"]), what, where)
    context = params.get("ctx_mesh")
    if not found and isinstance(context, Mesh) and not context.empty:
        mesh = slice_mesh(context, what, where)
        found = {mesh.slice.number: mesh}
    return found


def move_targets(eqn: Eqn) -> list[Any]:
    """Returns the target sharding of each operand; None if the equation names no devices.

    A transposed device_put returns to the type of its operand, which names no devices.
    """
    name, params = eqn.primitive.name, eqn.params
    if name == "device_put":
        return [None if is_unspecified(d) or _is_abstract(d) else d for d in params["devices"]]
    if name == "sharding_constraint":
        return [None if _is_abstract(params["sharding"]) else params["sharding"]]
    target, concrete = params["dst_sharding"], params.get("concrete_mesh")
    if isinstance(concrete, Mesh):
        target = NamedSharding(concrete, target.spec)
    return [None if _is_abstract(target) else target]


def move_meshes(eqn: Eqn) -> list[SliceMesh]:
    where, found = where_of_equation(eqn), list[SliceMesh]()
    for target in move_targets(eqn):
        if target is not None:
            found.append(sharding_from_jax(target, 0, eqn.primitive.name, where)[0])
    return found


def _is_abstract(sharding: Any) -> bool:
    mesh = getattr(sharding, "mesh", None)
    return mesh is not None and not isinstance(mesh, Mesh)
