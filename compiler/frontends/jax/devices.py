"""Defines virtual devices and slices, which users create with `pw.make_virtual_device_set` before the real machines are
known (paper, section 3). A slice is a set of virtual devices with fast links between them.

JAX accepts them in `Mesh`, `NamedSharding`, `jax.pmap(devices=...)`, `jax.shard_map` and `jax.jit(in_shardings=...)`
and traces through them. They hold no memory and cannot compute: the runtime does that on real devices.
"""

import contextvars
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np
from jax.sharding import AxisType, Mesh

from pathways.compiler.errors import BadSlice, OutsideProgram
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.errors import BadArguments
from pathways.dialect.user_line import caller

_device_ids = itertools.count()
_slice_ids = itertools.count()


class _Memory(str):
    """The memory of a virtual device, equal to the name of its kind.

    JAX compares memories with names of memory kinds. If this comparison fails, vmap, jacfwd and arrays of keys silently
    lose their mesh.
    """

    @property
    def kind(self) -> str:
        return str(self)


lowering_for: contextvars.ContextVar[str] = contextvars.ContextVar("pathways_lowering_for", default="")
"""The platform for which a computation is being lowered. JAX requires callbacks' backend to be of this platform."""


class _Client:
    """The backend of a virtual device. It has only a name; JAX's other requests raise an error."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self.platform_version = "virtual"

    @property
    def platform(self) -> str:
        return lowering_for.get() or self._platform

    def process_index(self) -> int:
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PathwaysError(OutsideProgram(device="virtual devices", requested=name, where=caller()))


class VirtualDevice:
    """One device of a slice; small, hashable, ordered by `id`."""

    def __init__(self, owner: "VirtualSlice", position: int, platform: str, kind: str) -> None:
        self.id = next(_device_ids)
        self.slice = owner
        self.position = position
        self.platform = platform
        self.device_kind = kind
        self.process_index = 0
        self.client = _Client(platform)
        self.own_device: Any = None
        """The device of this process that a program names, and that this virtual device replaces."""

    def default_memory(self) -> _Memory:
        return _Memory("device")

    def addressable_memories(self) -> list[_Memory]:
        return [_Memory("device"), _Memory("pinned_host"), _Memory("unpinned_host")]

    def memory(self, kind: str) -> _Memory:
        return _Memory(kind)

    def __lt__(self, other: "VirtualDevice") -> bool:
        return self.id < other.id

    def __repr__(self) -> str:
        return f"VirtualDevice({self.slice.name}[{self.position}])"


class VirtualSlice:
    """A virtual set of devices with fast links between them; placement binds it to devices of one island.

    `name` is unique in the process; `devices` (also `tpus`, `gpus`, `cpus`) are its virtual devices in order.
    """

    def __init__(
        self,
        devices: int,
        *,
        prefer: str | None = None,
        kind: str | None = None,
        island: "str | VirtualSlice | None" = None,
        topology: tuple[int, ...] | None = None,
        where: Where | None = None,
    ) -> None:
        self.number = next(_slice_ids)
        self.name = f"slice{self.number}"
        self.prefer = prefer
        self.kind = kind
        self.island = island
        self.topology = topology
        self.where = where
        platform = prefer or "any"
        self.devices = [VirtualDevice(self, i, platform, kind or f"virtual {platform}") for i in range(devices)]

    @property
    def tpus(self) -> list[VirtualDevice]:
        return self.devices

    @property
    def gpus(self) -> list[VirtualDevice]:
        return self.devices

    @property
    def cpus(self) -> list[VirtualDevice]:
        return self.devices

    def mesh(
        self,
        axis_names: Sequence[str] | str,
        shape: Sequence[int] | int | None = None,
        *,
        axis_types: Sequence[AxisType] | AxisType | None = None,
    ) -> Mesh:
        """Returns a `jax.sharding.Mesh` over all devices of the slice.

        `axis_names` and `shape` have one entry per axis. Without a shape, the mesh has one axis, or the slice's
        `topology`. `axis_types` are JAX's, one per axis or one for all; default: automatic. Raises PWC0201 if the shape
        does not take exactly the slice's devices.
        """
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        default = self.topology if self.topology and len(self.topology) == len(names) else (len(self.devices),)
        sizes = default if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
        if len(sizes) != len(names) or math.prod(sizes) != len(self.devices):
            product = " x ".join(map(str, sizes))
            raise PathwaysError(
                BadSlice(
                    slice=self.name,
                    have_=f"axes {names} of shape ({product}) = {math.prod(sizes)} devices",
                    rule=f"one size per axis, {len(self.devices)} devices in all: {self.described}",
                    advice=f"choose sizes with the product {len(self.devices)}, or a slice of {math.prod(sizes)}",
                    where=caller(),
                )
            )
        types = (axis_types,) * len(names) if isinstance(axis_types, AxisType) else axis_types
        return Mesh(device_grid(self.devices, sizes), names, axis_types=None if types is None else tuple(types))

    @property
    def described(self) -> str:
        """The name of the slice, and the user's line that requested it."""
        return self.name if self.where is None else f"{self.name} ({self.where.file}:{self.where.line})"

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.devices)} x {self.kind or self.prefer or 'any'}>"


@functools.cache
def implicit_slice() -> VirtualSlice:
    """Returns the one-device slice of programs without slices; the same slice for the whole process."""
    return VirtualSlice(1)


def mesh_of_others(mesh: Mesh, devices: Sequence[Any]) -> Mesh:
    """Returns a mesh with the same axes over other devices, in the same order."""
    return Mesh(device_grid(devices, mesh.devices.shape), mesh.axis_names, axis_types=mesh.axis_types)


def device_grid(devices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Returns an array of devices, which NumPy would otherwise try to read as sequences."""
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    return grid.reshape(shape)


class VirtualDeviceSet:
    """The slices that a program requests."""

    def __init__(self) -> None:
        self.slices: list[VirtualSlice] = []

    def add_slice(
        self,
        devices: int | None = None,
        *,
        tpu_devices: int | None = None,
        gpu_devices: int | None = None,
        cpu_devices: int | None = None,
        kind: str | None = None,
        island: str | VirtualSlice | None = None,
        topology: tuple[int, ...] | int | None = None,
    ) -> VirtualSlice:
        """Requests a slice of n devices.

        `tpu_devices=`, `gpu_devices=` and `cpu_devices=` are preferences: if there are none, other devices are used,
        and a note reports it. `devices=` accepts any devices. `kind=` (a device kind) must be met. `island=` names an
        island of the topology, or another slice whose island it must share. `topology=(2, 2)` requests an arrangement
        of the devices. Raises PWC0104 if a count is invalid.
        """
        counts = {"tpu": tpu_devices, "gpu": gpu_devices, "cpu": cpu_devices, None: devices}
        given = {platform: n for platform, n in counts.items() if n is not None}
        if len(given) != 1:
            raise _bad_count(
                "exactly one of devices=, tpu_devices=, gpu_devices=, cpu_devices=", f"{len(given)} of them"
            )
        ((platform, count),) = given.items()
        if not _is_count(count):
            raise _bad_count("a whole number of devices from 1", repr(count))
        shape = (topology,) if isinstance(topology, int) else topology
        if shape is not None and math.prod(shape) != count:
            raise _bad_count(f"a topology of {count} devices", f"{shape} = {math.prod(shape)} devices")
        made = VirtualSlice(count, prefer=platform, kind=kind, island=island, topology=shape, where=caller())
        self.slices.append(made)
        return made


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def make_virtual_device_set() -> VirtualDeviceSet:
    """Returns an empty set of slices.

    This is the paper's entry point: `make_virtual_device_set().add_slice(tpu_devices=4).tpus`.
    """
    return VirtualDeviceSet()


def _bad_count(rule: str, have: str) -> PathwaysError:
    return PathwaysError(
        BadArguments(
            problem="add_slice got an invalid number of devices",
            have_=have,
            rule=rule,
            advice="add_slice(devices=4)",
            where=caller(),
        )
    )
