"""Converts the meshes of a program to the form that Shardy's MPMD dialect needs. There, each mesh has a name, and no
two meshes share a device. `mpmd_text.py` calls it.

A slice may have several meshes in this compiler. Meshes over the same devices become one mesh whose axes are fine
enough for all of them. For example, with axes x=4 and data=2, model=2, a split over x becomes a split over data and
model. Other meshes cannot share devices.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pathways.compiler.emit.errors import NotInShardy
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import where_of
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Axes, Dims, MeshSpec


@dataclass(frozen=True)
class NamedMesh:
    """A mesh of a program in Shardy's form."""

    name: str
    axes: Axes


@dataclass(frozen=True)
class MeshOfOurs:
    """Maps one of this compiler's meshes to a named mesh, and each of its axes to axes of that mesh."""

    home: NamedMesh
    spelled: Mapping[str, tuple[str, ...]]

    def dims(self, dims: Dims) -> Dims:
        return tuple(tuple(name for axis in axes for name in self.spelled[axis]) for axes in dims)


@dataclass(frozen=True)
class NamedMeshes:
    """The meshes of a program in Shardy's form, by the symbols of this compiler's meshes."""

    found: Mapping[str, MeshOfOurs]

    def home(self, mesh: str) -> NamedMesh:
        return self.found[mesh].home

    def dims(self, placed: Placed) -> Dims:
        return self.found[placed.mesh].dims(placed.dims)

    @property
    def all(self) -> list[NamedMesh]:
        return list(dict.fromkeys(ours.home for ours in self.found.values()))


def name_meshes(program: ProgramIR, used: Iterable[str]) -> NamedMeshes:
    """Finds the named mesh of each used mesh. Raises PWC0127 if a device would be in two named meshes."""
    wanted = set(used)
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for mesh in program.meshes:
        if mesh in wanted:
            groups.setdefault((program.slice_of(mesh), program.mesh(mesh).devices), []).append(mesh)
    taken: dict[tuple[str, int], str] = {}
    found: dict[str, MeshOfOurs] = {}
    for (owner, devices), meshes in groups.items():
        for device in devices:
            other = taken.setdefault((owner, device), meshes[0])
            if other != meshes[0]:
                raise _shared(program, other, meshes[0], "they share some devices")
        axes = common_axes([program.mesh(mesh).axes for mesh in meshes])
        if axes is None:
            raise _shared(program, meshes[0], meshes[-1], "the same devices, split in incompatible ways")
        home = NamedMesh(meshes[0], axes)
        found |= {mesh: MeshOfOurs(home, spell(program.mesh(mesh).axes, axes)) for mesh in meshes}
    return NamedMeshes({mesh: found[mesh] for mesh in program.meshes if mesh in found})


def common_axes(several: Sequence[Axes]) -> Axes | None:
    """Finds the coarsest axes that refine all given axes over the same devices; None if there are none."""
    if len(set(several)) == 1:
        return several[0]
    strides = sorted({s for axes in several for s in _strides(axes)})
    if any(large % small for small, large in pairwise(strides)):
        return None
    sizes = [large // small for small, large in pairwise(strides)][::-1]
    for axes in several:
        if [size for _, size in axes if size > 1] == sizes:
            return tuple((name, size) for name, size in axes if size > 1)
    return tuple((f"part{number}", size) for number, size in enumerate(sizes))


def spell(axes: Axes, common: Axes) -> dict[str, tuple[str, ...]]:
    """Expresses each axis as the common axes that it consists of, major to minor. An axis of size 1 has none."""
    strides = _strides(common)
    spelled: dict[str, tuple[str, ...]] = {}
    for (name, size), stride in zip(axes, _strides(axes)[1:], strict=True):
        within = zip(common, strides[1:], strict=True)
        spelled[name] = tuple(fine for (fine, parts), at in within if parts > 1 and stride <= at < stride * size)
    return spelled


def _strides(axes: Axes) -> list[int]:
    """Returns the number of all devices, then the stride of each axis in devices."""
    strides = [1]
    for _, size in reversed(axes):
        strides.append(strides[-1] * size)
    return strides[::-1]


def _shared(program: ProgramIR, first: str, second: str, how: str) -> PathwaysError:
    op = program.slices[program.slice_of(second)]
    where = where_of(program.meshes[second].operation) or where_of(op.operation)
    shown = [f"{m} ({_describe_mesh(program.mesh(m))})" for m in (first, second)]
    return PathwaysError(
        NotInShardy(
            what=f"two meshes on slice {op.sym_name}",
            have_=f"{' and '.join(shown)}: {how}",
            rule="one mesh for each device: one order of its devices, and axes that suit all computations on them",
            advice="one slice for each mesh, or one mesh for both; jax.device_put moves values between slices",
            where=where,
        )
    )


def _describe_mesh(mesh: MeshSpec) -> str:
    return f"{mesh}; devices {', '.join(map(str, mesh.devices))}"
