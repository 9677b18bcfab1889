"""Parses the types of Shardy's MPMD dialect: a tensor, the mesh that holds it, and the axes that split it. jaxlib has
no Python bindings for them. `read.py` and `fragments.py` call it.

The module parses their printed form, each type once.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from pathways.compiler.frontends.mpmd.errors import MpmdUnsupported, NotMpmd, WrongMpmdPhase
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType, from_mlir, is_array_type
from pathways.dialect.memo import remembered
from pathways.dialect.mlir import Attribute, ir
from pathways.dialect.plan.check_types import type_problem
from pathways.dialect.sdy import has_sub_axes, is_closed, read_axes, read_sharding, shardings_in
from pathways.dialect.sharding import Axes, Dims

_TENSOR = re.compile(r"tensor<[^<>]*(?:<[^<>]*>[^<>]*)*>")
_MESH_TENSOR = re.compile(r'!mpmd\.mesh_tensor<"(?P<mesh>[^"]*)", (?P<rest>.*)>$')
_SYMBOL = r'@[\w.$]+|@"(?:[^"\\]|\\.)*"'
_SHARDING = re.compile(rf", sharding=(?P<sharding><(?:{_SYMBOL}|mesh<.*?>), \[.*?\].*?>)(?=$|, memory_kind=)")
_MEMORY = re.compile(r', memory_kind="(?P<memory>[^"]+)"$')
_NAMED_MESH = re.compile(r'<("(?:[^"\\]|\\.)*") ?: ?(<\[.*?\]>)>')
SHARDING = "sdy.sharding"
DEVICE_MEMORY = ("device", "")
"""The memory kinds of values on devices; `pinned_host` and others are kinds of host memory."""


@dataclass(frozen=True)
class MeshTensor:
    """The type of a value: its mesh, its array type, its split if stated, and its memory kind."""

    mesh: str
    type: ArrayType
    dims: Dims | None
    memory: str = ""

    @property
    def on_device(self) -> bool:
        return self.memory in DEVICE_MEMORY

    def split(self, dims: Dims | None) -> "MeshTensor":
        """Returns the same type with this split, if it has none yet."""
        return self if self.dims is not None or dims is None else replace(self, dims=dims)


@remembered
def read_mesh_tensor(type_: Any) -> MeshTensor:
    """Reads `!mpmd.mesh_tensor<"m0", tensor<4x8xf32>, sharding=<@mesh, [{"data"}, {}]>>`; needs its context.

    Raises PWC0121 if the value is on no mesh, PWC0122 if a program cannot state its sharding.
    """
    printed = str(type_)
    found = _MESH_TENSOR.match(printed)
    tensor = None if found is None else _TENSOR.match(found["rest"])
    if found is None or tensor is None:
        rule = "every value on a mesh, as after Shardy's phase IMPORT"
        advice = "mpmd.jit(f, config).lower(...) runs all phases of Shardy"
        problem = "a value has no mesh"
        raise PathwaysError(WrongMpmdPhase(problem=problem, have_=printed, rule=rule, advice=advice))
    rest = found["rest"][tensor.end() :]
    memory, sharding = _MEMORY.search(rest), _SHARDING.search(rest)
    dims = None if sharding is None else stated_dims(ir.Attribute.parse(f"#sdy.sharding{sharding['sharding']}"))
    in_memory = "" if memory is None else memory["memory"]
    return MeshTensor(found["mesh"], _array_type(ir.Type.parse(tensor[0])), dims, in_memory)


def _array_type(type_: Any) -> ArrayType:
    """Reads a tensor type. Raises PWC0122 if no array has it: unknown sizes, quantized, encoded, too large."""
    rule, problem = "known sizes, and an element type of JAX", None
    if is_array_type(type_) and type_.encoding is None:
        if (problem := type_problem(from_mlir(type_))) is None:
            return from_mlir(type_)
        rule = problem[1]
    advice = "pass arrays that jax.jit accepts"
    raise PathwaysError(MpmdUnsupported(what=f"{type_}", have_="a value of this type", rule=rule, advice=advice))


def stated_dims(sharding: Attribute, where: Where | None = None) -> Dims | None:
    """Reads a sharding as a start of propagation; None if it is open and splits nothing. Raises PWC0122."""
    dims = dims_of(sharding, where)
    return dims if any(dims) or is_closed(sharding) else None


def split_as_stated(
    attributes: Any, names: tuple[str, ...], values: list[MeshTensor], where: Where | None
) -> tuple[MeshTensor, ...]:
    """Completes types that have no split from an attribute of their op. Raises PWC0122."""
    found = next((attributes[name] for name in names if name in attributes), None)
    if found is None:
        return tuple(values)
    stated = [stated_dims(sharding, where) for sharding in shardings_in(found)]
    return tuple(value.split(dims) for value, dims in zip(values, stated, strict=True))


def dims_of(sharding: Attribute, where: Where | None = None) -> Dims:
    """Reads the axes of each dimension. Raises PWC0122 for a part of an axis."""
    if has_sub_axes(sharding):
        rule, advice = "whole axes of a mesh", "split the mesh axis into two, one of the size of that part"
        what = "a part of a mesh axis"
        raise PathwaysError(MpmdUnsupported(what=what, have_=str(sharding), rule=rule, advice=advice, where=where))
    return read_sharding(sharding).dims


def read_meshes(attribute: Attribute, name: str) -> dict[str, Axes]:
    """Reads the meshes of a program, in order; needs its context. Raises PWC0120."""
    meshes = {
        ir.Attribute.parse(mesh).value: read_axes(ir.Attribute.parse(f"#sdy.mesh{axes}"))
        for mesh, axes in _NAMED_MESH.findall(str(attribute))
    }
    if not meshes:
        have, advice = f"a topology without meshes: {attribute}", "name the meshes in MpmdConfig"
        raise PathwaysError(NotMpmd(name=name, have_=have, advice=advice))
    return meshes
