"""Converts JAX shardings over virtual devices to this compiler's terms: a slice, a mesh on the slice, and the mesh axes
that split each dimension. Most modules of the JAX front end use it.

It raises coded errors for shardings that a program cannot have.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from pathways.compiler.errors import BadSlice, NotDivisible, RealDevices, SeveralSlices, Unsupported
from pathways.compiler.frontends.jax.compat import is_unspecified
from pathways.compiler.frontends.jax.devices import VirtualDevice, VirtualSlice
from pathways.dialect import jax_api
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.sharding import Dims, MeshSpec, Shape, Sharding, replicated

JaxSharding: TypeAlias = Any


@dataclass(frozen=True)
class SliceMesh:
    """A mesh on a slice: the placement of a value or a computation."""

    slice: VirtualSlice
    spec: MeshSpec


def default_mesh(slice_: VirtualSlice) -> SliceMesh:
    """Returns a mesh with one axis over all devices, for a slice without a mesh of the user's."""
    count = len(slice_.devices)
    return SliceMesh(slice_, MeshSpec((("devices", count),), tuple(range(count))))


def ambient() -> Mesh | None:
    """Returns the mesh of the `jax.set_mesh` around the trace."""
    mesh = jax_api.get_mesh()
    return mesh if isinstance(mesh, Mesh) and not mesh.empty else None


def ambient_mesh() -> SliceMesh | None:
    """Returns the ambient mesh, if its devices are virtual."""
    mesh: Any = ambient()
    virtual = mesh is not None and all(isinstance(d, VirtualDevice) for d in mesh.devices.flat)
    return slice_mesh(mesh, "jax.set_mesh", None) if virtual else None


def slice_mesh(mesh: Any, what: str, where: Where | None) -> SliceMesh:
    """Reads a concrete mesh. Raises PWC0202 for real devices, PWC0204 for several slices."""
    devices: list[Any] = list(mesh.devices.flat)
    if any(not isinstance(d, VirtualDevice) for d in devices):
        raise PathwaysError(RealDevices(what=what, devices=", ".join(map(str, devices)), where=where))
    slices = {d.slice.number: d.slice for d in devices}
    if len(slices) != 1:
        have = f"a mesh over {', '.join(s.described for s in slices.values())}"
        raise PathwaysError(SeveralSlices(what=what, have_=have, where=where))
    (owner,) = slices.values()
    axes = tuple((str(name), int(size)) for name, size in mesh.shape.items())
    positions = tuple(d.position for d in devices)
    if len(set(positions)) != len(positions):
        raise PathwaysError(
            BadSlice(
                slice=owner.name,
                have_=f"devices {positions}",
                rule="each device at most once in a mesh",
                advice="slice.mesh(axis_names, shape) takes every device once",
                where=where,
            )
        )
    return SliceMesh(owner, MeshSpec(axes, positions))


def sharding_from_jax(sharding: JaxSharding, rank: int, what: str, where: Where | None) -> tuple[SliceMesh, Dims]:
    """Reads a `NamedSharding` (or a single virtual device) for an array of `rank` dimensions."""
    if isinstance(sharding, SingleDeviceSharding):
        (device,) = cast("set[Any]", cast("Any", sharding).device_set)
        if not isinstance(device, VirtualDevice):
            raise PathwaysError(RealDevices(what=what, devices=str(device), where=where))
        return SliceMesh(device.slice, MeshSpec((("device", 1),), (device.position,))), replicated(rank)
    if not isinstance(sharding, NamedSharding):
        raise PathwaysError(
            Unsupported(
                what=f"a {type(sharding).__name__}",
                have_=str(sharding),
                rule="a NamedSharding over virtual devices",
                advice="NamedSharding(slice.mesh(...), PartitionSpec(...))",
                where=where,
            )
        )
    kind = sharding.memory_kind
    if kind not in (None, "device"):
        raise PathwaysError(
            Unsupported(
                what=f"memory kind {kind!r}",
                have_=f"{sharding}",
                rule="values in device memory",
                advice="leave memory_kind out",
                where=where,
            )
        )
    dims: list[tuple[str, ...]] = []
    for entry in tuple(sharding.spec)[:rank]:
        match entry:
            case None:
                dims.append(())
            case str():
                dims.append((entry,))
            case tuple():
                dims.append(tuple(str(a) for a in cast("tuple[Any, ...]", entry)))
            case _:
                dims.append(())  # PartitionSpec.UNCONSTRAINED: a jit leaves it to propagation, a move does not split it
    dims += [()] * (rank - len(dims))
    return slice_mesh(sharding.mesh, what, where), tuple(dims)


def undivided(value: str, shape: Shape, mesh: SliceMesh, dims: Dims, where: Where | None) -> list[NotDivisible]:
    """Reports every dimension that does not divide, as PWC0203 with the arithmetic; empty if all do."""
    sharding = Sharding(mesh.spec, dims)
    bad = [
        f"dimension {i} of {list(shape)} is {shape[i]}, over {' x '.join(dims[i])} = {parts} parts: "
        f"{shape[i]} mod {parts} = {shape[i] % parts}"
        for i, parts in sharding.undivided(shape)
    ]
    return [NotDivisible(value=value, have_="\n".join(bad), where=where)] if bad else []


def slices_of(shardings: Any, what: str, where: Where | None) -> dict[int, SliceMesh]:
    """Finds the slices that some shardings name, by number; unspecified shardings name none."""
    found: dict[int, SliceMesh] = {}
    for sharding in shardings:
        if not is_unspecified(sharding):
            mesh, _ = sharding_from_jax(sharding, 0, what, where)
            found.setdefault(mesh.slice.number, mesh)
    return found
