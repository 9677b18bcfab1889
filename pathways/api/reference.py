"""Runs a plan in the simplest way, to check results: one computation after the other through `jax.jit`, with every
value copied through the host. `pwc run --reference` compares its results with those of the real run.

There is no donation, no device-to-device transfer and no merging. A plan holds modules, not functions, so each is
passed to `jax.export` in that library's own format.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pathways.api.errors import NoReference
from pathways.api.pieced_arguments import spread_leaves
from pathways.api.process import process
from pathways.dialect import jax_api
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.jax_api import ShapedArray, device_put, export, jit, tree_util
from pathways.dialect.plan.instructions import Branch, Copy, Recv, Run, Send
from pathways.dialect.plan.leaves import leaves_of
from pathways.dialect.plan.nouns import Computation, Layout, Plan
from pathways.dialect.plan.order import Joined, linearize
from pathways.runtime.client.inputs import as_host
from pathways.runtime.host.devices import pjrt


@dataclasses.dataclass(frozen=True)
class Difference:
    """The distance of a result from the reference: the largest difference over the largest expected magnitude."""

    name: str
    relative: float
    tolerance: float

    @property
    def close(self) -> bool:
        return self.relative <= self.tolerance

    def __str__(self) -> str:
        if self.relative != float("inf"):
            return f"{self.name}: relative difference {self.relative:.3g}, allowed {self.tolerance:g}"
        return f"{self.name}: " + ("NaN or infinity at other positions" if self.tolerance else "different integers")


def compare(name: str, actual: "np.ndarray[Any, Any]", expected: "np.ndarray[Any, Any]") -> Difference:
    """Compares values: integers exactly, NaN with NaN, infinities with their signs."""
    if expected.dtype.kind in "biu":
        return Difference(name, 0.0 if np.array_equal(actual, expected) else float("inf"), 0.0)
    small = expected.dtype.kind == "V" or expected.dtype.itemsize < 4
    tolerance = 2e-2 if small else 1e-4
    wide: Any = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    if a.shape != b.shape or not np.array_equal(finite, np.isfinite(a)):
        return Difference(name, float("inf"), tolerance)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Difference(name, float("inf"), tolerance)
    if not finite.any():
        return Difference(name, 0.0, tolerance)
    scale = float(np.abs(b[finite]).max()) or 1.0
    return Difference(name, float(np.abs(a[finite] - b[finite]).max()) / scale, tolerance)


def check_reference(plan: Plan) -> None:
    """Raises PWC0811 for a plan that calls back to the host: `jax.export` would end the process."""
    for run in plan.runs():
        if plan.computations[run.computation].callbacks:
            raise PathwaysError(NoReference(name=run.name, program=plan.name, where=run.where))


def run_reference(plan: Plan, arguments: Sequence[Any]) -> list["np.ndarray[Any, Any]"]:
    """Runs a plan once, with one value for each array, in pieces or not. Returns the results on the host.

    Raises PWC0811 for a plan that calls back to the host.
    """
    check_reference(plan)
    inputs = spread_leaves(arguments, leaves_of(plan.inputs), plan.name)
    inputs = [as_host(v, p, plan.name) if p.slot >= 0 else None for p, v in zip(plan.inputs, inputs, strict=True)]
    with jax_api.enable_x64(True):  # use the plan's element types, regardless of this thread's settings
        results = _run(plan, inputs, _Called())
    made = [(leaf, [results[n] for n in leaf.numbers]) for leaf in leaves_of(plan.results)]
    return [np.concatenate(parts, leaf.axis) if leaf.is_cut else parts[0] for leaf, parts in made]


class _Called(dict[tuple[int, int], Any]):
    """The computations of a plan as functions, by number and mesh. Keeps the islands on which they run bound."""

    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]


def _run(plan: Plan, arguments: Sequence[Any], called: _Called) -> list["np.ndarray[Any, Any]"]:
    """Runs the program or a body; `called` has its computations as functions."""
    values: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
    channels: dict[int, np.ndarray[Any, Any]] = {}
    islands = process().local_machine.islands_for(plan, called)
    for port, value in zip(plan.inputs, arguments, strict=True):
        if port.slot >= 0:
            values[port.island, port.slot] = value
    for held in plan.constant_buffers:
        type_ = plan.stream(held.island).kind_of[held.slot].type
        raw = np.frombuffer(plan.constants[held.member], numpy_dtype(type_.dtype))
        values[held.island, held.slot] = raw.reshape(type_.shape)
    for at, instruction in linearize(plan):
        island = plan.streams[at].island
        match instruction:
            case Run():
                key = instruction.computation, instruction.mesh
                if key not in called:
                    devices = islands[island].at(plan.meshes[instruction.mesh].devices)
                    called[key] = _callable(plan, instruction, devices)
                outputs = called[key]([values[island, s] for s in instruction.inputs])
                values.update(zip(((island, s) for s in instruction.outputs), outputs, strict=True))
            case Send():
                channels[instruction.channel] = values[island, instruction.slot]
            case Recv():
                values[island, instruction.slot] = channels[instruction.channel]
            case Copy():
                values[island, instruction.target] = values[island, instruction.source]
            case Joined():
                parts = [(plan.streams[s].island, part) for s, part in instruction.parts]
                given = {n: values[i, slot] for i, p in parts for n, slot in zip(p.taken, p.inputs, strict=True)}
                made = _branch(plan, instruction.branch, [given[n] for n in sorted(given)], called)
                for name, p in parts:
                    values.update(((name, slot), made[n]) for n, slot in zip(p.made, p.outputs, strict=True))
            case _:
                pass
    return [values[p.island, p.slot] for p in plan.results]


def _branch(plan: Plan, branch: Branch, operands: list[Any], called: _Called) -> list["np.ndarray[Any, Any]"]:
    if branch.kind == "cond":
        number = min(max(int(operands[0]), 0), len(branch.bodies) - 1)
        return _run(plan.of_body(branch.bodies[number]), operands[1:], called)
    test, body = (plan.of_body(number) for number in branch.bodies)
    fixed = len(operands) - len(body.results)
    while _run(test, operands, called)[0]:
        operands = [*operands[:fixed], *_run(body, operands, called)]
    return operands[fixed:]


def _callable(plan: Plan, run: Run, devices: Sequence[Any]) -> Any:
    """Makes a function of host arrays from a computation."""
    computation = plan.computations[run.computation]
    spec = plan.meshes[run.mesh].spec
    module = exported(computation, plan.platform, len(devices))
    call = jit(module.call)
    shardings = [pjrt.named_sharding(spec, Layout(run.mesh, dims).dims, devices) for dims in computation.in_layouts]
    anchor = pjrt.named_sharding(spec, (), devices)

    def function(inputs: Sequence[Any]) -> list["np.ndarray[Any, Any]"]:
        if not inputs:  # without an argument, only the context specifies the devices
            outs = jit(module.call, out_shardings=anchor)()
        else:
            outs = call(*[device_put(x, s) for x, s in zip(inputs, shardings, strict=True)])
        return [np.asarray(o) for o in outs]

    return function


def exported(computation: Computation, platform: str, count: int) -> Any:
    """Converts a module to the object that `jax.export` would have written. Versions of JAX differ in its fields."""
    ins, outs = _avals(computation.inputs), _avals(computation.outputs)
    fields: dict[str, Any] = {
        "fun_name": computation.name,
        "in_tree": tree_util.tree_structure(((0,) * len(ins), {})),
        "in_avals": ins,
        "out_tree": tree_util.tree_structure([0] * len(outs)),
        "out_avals": outs,
        "_has_named_shardings": False,
        "_in_named_shardings": (None,) * len(ins),
        "_out_named_shardings": (None,) * len(outs),
        "in_shardings_hlo": (None,) * len(ins),
        "out_shardings_hlo": (None,) * len(outs),
        "nr_devices": count,
        "platforms": (pjrt.lowering_platform(platform),),
        "ordered_effects": (),
        "unordered_effects": (),
        "disabled_safety_checks": (),
        "mlir_module_serialized": computation.module,
        "calling_convention_version": export.maximum_supported_calling_convention_version,
        "module_kept_var_idx": tuple(range(len(ins))),
        "uses_global_constants": False,
        "_get_vjp": None,
    }
    known = {f.name for f in dataclasses.fields(export.Exported)}
    return export.Exported(**{n: v for n, v in fields.items() if n in known})


def _avals(types: Sequence[ArrayType]) -> tuple[Any, ...]:
    return tuple(ShapedArray(t.shape, numpy_dtype(t.dtype)) for t in types)
