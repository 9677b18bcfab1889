"""Replaces real devices of this process in a traced program by virtual devices. Libraries, for example, put values on
`jax.devices()[0]`. `trace.py` calls it right after JAX's trace.

Libraries put values on `jax.devices()[0]`, or constrain them to a mesh of all devices of the process. In a program, an
own device stands for a device of a virtual slice. The slice is chosen by the first rule that applies:

* the slice that `pw.program(meshes={mesh: slice})` names;
* the program's only slice, if it has the same number of devices;
* if the program has no slice, a new slice.

A target of a single device requests nothing: a value stays where its data are. Devices that remain raise PWC0202 when
they are read (meshes.py). It makes new jaxprs, since code outside shares those of JAX.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import jax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from pathways.compiler.errors import BadSlice
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.devices import VirtualDevice, VirtualSlice, implicit_slice, mesh_of_others
from pathways.compiler.frontends.jax.mentions import JITS, MOVES
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import jit, make_jaxpr
from pathways.dialect.user_line import caller

Meshes: TypeAlias = Mapping[Mesh, VirtualSlice]
_SHARDINGS = ("devices", "sharding", "dst_sharding", "in_shardings", "out_shardings", "ctx_mesh")
_DEVICES: Any = (cast("Any", jax).Device, VirtualDevice)
_PLACED = MOVES | JITS | {"shard_map"}
"""Equations that may name devices."""
_MESHES = ("mesh", "concrete_mesh")
"""Parameters of equations that hold a mesh."""


def with_virtual_devices(jaxpr: Any, meshes: Meshes) -> Any:
    """Returns the jaxpr with virtual devices in place of own devices; the same jaxpr if it names none."""
    named = _Named()
    named.read(jaxpr)
    if not named.own:
        return jaxpr
    return _Replacer(_virtual_devices_for(named, meshes)).jaxpr(jaxpr)


@dataclass
class _Named:
    """The meshes of own devices that a jaxpr names, and the virtual slices that it names."""

    own: dict[tuple[Any, ...], None] = field(default_factory=dict[tuple[Any, ...], None])
    slices: dict[int, VirtualSlice] = field(default_factory=dict[int, VirtualSlice])
    _seen: dict[int, Any] = field(default_factory=dict[int, Any])

    def read(self, jaxpr: Any) -> None:
        if id(jaxpr) in self._seen:
            return
        self._seen[id(jaxpr)] = jaxpr
        for eqn in compat.body_of(jaxpr).eqns:
            for target in _targets(eqn):
                devices = _devices_of(target)
                self.slices.update({d.slice.number: d.slice for d in devices if isinstance(d, VirtualDevice)})
                if devices and not any(isinstance(d, VirtualDevice) for d in devices):
                    self.own[devices] = None
            for inner in compat.sub_jaxprs(eqn):
                self.read(inner)


def _targets(eqn: Eqn) -> Iterator[Any]:
    """Yields the devices, shardings and meshes that an equation names."""
    if eqn.primitive.name not in _PLACED:
        return
    for name in (*_SHARDINGS, *_MESHES):
        found = eqn.params.get(name)
        yield from found if isinstance(found, tuple | list) else (found,)


def _devices_of(target: Any) -> tuple[Any, ...]:
    """Returns the devices that a device, sharding or mesh names, in order; empty if it names none."""
    if isinstance(target, NamedSharding):
        target = target.mesh
    if isinstance(target, Mesh):
        return () if target.empty else tuple(target.devices.flat)
    if isinstance(target, SingleDeviceSharding):
        return tuple(cast("Any", target).device_set)
    return (target,) if isinstance(target, _DEVICES) else ()


def _virtual_devices_for(named: _Named, meshes: Meshes) -> dict[Any, VirtualDevice]:
    """Chooses the virtual device for each own device. Own devices that are only named singly may have none."""
    found: dict[Any, VirtualDevice] = {}
    for mesh, slice_ in meshes.items():
        found.update(zip(mesh.devices.flat, slice_.devices, strict=True))
    for devices in named.own:
        if len(devices) == 1 or all(d in found for d in devices):
            continue
        ordered = tuple(sorted(devices, key=lambda d: d.id))
        fitting = [s for s in named.slices.values() if len(s.devices) == len(devices)]
        if not named.slices:
            found.update(zip(ordered, _own_slice(ordered).devices, strict=True))
        elif len(named.slices) == len(fitting) == 1:
            found.update(zip(ordered, fitting[0].devices, strict=True))
    return found


def check_meshes(meshes: Meshes) -> None:
    """Raises PWC0201 if a mesh and the slice that it stands for have different numbers of devices."""
    for mesh, slice_ in meshes.items():
        if mesh.devices.size != len(slice_.devices):
            have, rule = f"{mesh} of {mesh.devices.size} devices", f"{len(slice_.devices)}, as in {slice_.described}"
            advice = f"pw.make_virtual_device_set().add_slice(devices={mesh.devices.size})"
            raise PathwaysError(BadSlice(slice=slice_.name, have_=have, rule=rule, advice=advice, where=caller()))


@functools.cache
def _own_slice(devices: tuple[Any, ...]) -> VirtualSlice:
    """Returns the slice for these own devices; the same slice for every program of the process.

    Its devices have the platform and kind of the own devices, since types in the body of a `shard_map` name both.
    """
    made = implicit_slice() if len(devices) == 1 else VirtualSlice(len(devices))
    for virtual, own in zip(made.devices, devices, strict=True):
        virtual.platform, virtual.device_kind, virtual.own_device = own.platform, own.device_kind, own
    return made


@functools.cache
def _unspecified() -> Any:
    """Returns JAX's marker for a sharding that is left to JAX; it has no public name."""

    def same(x: Any) -> Any:
        return x

    (eqn,) = compat.body_of(make_jaxpr(jit(same))(1.0)).eqns
    return eqn.params["in_shardings"][0]


class _Replacer:
    """Rebuilds jaxprs with virtual devices, each once."""

    def __init__(self, found: Mapping[Any, VirtualDevice]) -> None:
        self._found = found
        self._made: dict[int, tuple[Any, Any]] = {}

    def jaxpr(self, jaxpr: Any) -> Any:
        if id(jaxpr) not in self._made:
            known: dict[Any, Any] = {}
            body = compat.body_of(jaxpr)
            eqns = [made for eqn in body.eqns if (made := self._equation(eqn, known)) is not None]
            outvars = [_now(atom, known) for atom in body.outvars]
            self._made[id(jaxpr)] = jaxpr, compat.with_equations(jaxpr, eqns, outvars)
        return self._made[id(jaxpr)][1]

    def _equation(self, eqn: Eqn, known: dict[Any, Any]) -> Eqn | None:
        """Rebuilds an equation; returns None for a constraint that requests nothing, whose result is its operand."""
        invars = [_now(atom, known) for atom in eqn.invars]
        params = {name: self._inner(value) for name, value in eqn.params.items()}
        if eqn.primitive.name in _PLACED:
            none = None if eqn.primitive.name == "device_put" else _unspecified()
            params |= {name: self._targets(params[name], none) for name in _SHARDINGS if name in params}
            params |= {name: self._typed_mesh(params[name]) for name in _MESHES if name in params}
        if eqn.primitive.name in MOVES and params.get("sharding") is _unspecified():
            known[eqn.outvars[0]] = invars[0]
            return None
        return eqn.replace(invars=invars, params=params)

    def _inner(self, value: Any) -> Any:
        """Replaces the jaxprs inside a parameter's value."""
        if isinstance(value, tuple):
            given = cast("tuple[Any, ...]", value)
            fields = [self._inner(one) for one in given]
            if all(new is old for new, old in zip(fields, given, strict=True)):
                return given
            return tuple(fields) if type(given) is tuple else type(given)(*fields)
        is_jaxpr = hasattr(value, "eqns") and hasattr(value, "invars")
        return self.jaxpr(value) if is_jaxpr or hasattr(getattr(value, "jaxpr", None), "eqns") else value

    def _targets(self, named: Any, none: Any) -> Any:
        """Replaces all devices that a parameter names. A single own device without a virtual one becomes `none`."""
        if isinstance(named, tuple | list):
            return tuple(self._targets(one, none) for one in cast("Sequence[Any]", named))
        moved = self._target(named)
        return none if moved is None and named is not None else moved

    def _target(self, target: Any) -> Any:
        """Returns the replacement of a target; None for a single own device without a virtual one."""
        devices = _devices_of(target)
        if not devices or isinstance(devices[0], VirtualDevice):
            return target
        if not all(d in self._found for d in devices):
            return None if len(devices) == 1 else target
        if isinstance(target, Mesh):
            return self._mesh(target)
        if isinstance(target, NamedSharding):
            return NamedSharding(self._mesh(cast("Mesh", target.mesh)), target.spec)
        return SingleDeviceSharding(self._found[devices[0]])

    def _typed_mesh(self, mesh: Any) -> Any:
        """Replaces a mesh that types in the jaxpr name. The mesh is kept if device kinds would change."""
        devices = _devices_of(mesh)
        if len(devices) == 1 and not isinstance(devices[0], VirtualDevice) and devices[0] not in self._found:
            return mesh_of_others(mesh, _own_slice(devices).devices)
        moved = self._target(mesh)
        kinds = [d.device_kind for d in _devices_of(moved)]
        return moved if kinds == [d.device_kind for d in devices] else mesh

    def _mesh(self, mesh: Mesh) -> Mesh:
        return mesh_of_others(mesh, [self._found[d] for d in mesh.devices.flat])


def _now(atom: Any, known: Mapping[Any, Any]) -> Any:
    return atom if isinstance(atom, compat.Literal) else known.get(atom, atom)
