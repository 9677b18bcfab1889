"""Checks that the @main function of a StableHLO module has the argument and result types, shardings and donations that
the plan states. `check.py` calls it for each module, before XLA compiles the module.

XLA compiles a module for the shardings in the module itself, and PJRT compares byte sizes only. If the layout differs
from the plan's, the module computes wrong numbers, or reads beyond its buffers.
"""

from typing import Any

from pathways.dialect.bare_mlir import Attribute, Operation, bare_ir, bare_sdy
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.plan.modules.stated_module import Refused, Stated
from pathways.dialect.sdy import has_sub_axes, is_closed, read_axes, read_sharding
from pathways.dialect.sharding import Axes, Dims

_DONOR, _ALIAS, _SHARDING = "jax.buffer_donor", "tf.aliasing_output", "sdy.sharding"
_KNOWN = {_DONOR, _ALIAS, _SHARDING}
_DEFAULTS = {"mhlo.layout_mode": "default", "mhlo.memory_kind": "device"}


def check_signature(main: Operation, meshes: dict[str, Axes], stated: Stated) -> None:
    """Raises Refused if @main differs from the plan's statement. `meshes` are those with all devices in order."""
    if len(stated.inputs) != len(stated.in_layouts) or len(stated.outputs) != len(stated.out_layouts):
        raise Refused("has layouts for another number of arrays than the plan states")
    type_ = bare_ir.FunctionType(main.attributes["function_type"].value)
    try:
        types = tuple(map(from_mlir, type_.inputs)), tuple(map(from_mlir, type_.results))
    except (KeyError, AttributeError, TypeError, ValueError):
        raise Refused("has arguments or results that are not arrays of a fixed shape") from None
    if types != (stated.inputs, stated.outputs):
        raise Refused("has other arguments or results")
    arguments = _described(main, "arg_attrs", len(stated.inputs))
    results = _described(main, "res_attrs", len(stated.outputs))
    donated = tuple(i for i, a in enumerate(arguments) if _DONOR in a or _ALIAS in a)
    if donated != stated.donated:
        raise Refused(f"donates {donated}, but the plan states {stated.donated}")
    _check_aliases(arguments, stated)
    for kind, attributes, arrays, layouts in (
        ("argument", arguments, stated.inputs, stated.in_layouts),
        ("result", results, stated.outputs, stated.out_layouts),
    ):
        for i, (attribute, array, dims) in enumerate(zip(attributes, arrays, layouts, strict=True)):
            _check_names(attribute, f"{kind} {i}")
            _check_layout(attribute, f"{kind} {i}", array, dims, meshes, stated)


def meshes_stated(module: Operation, partitions: int) -> dict[str, Axes]:
    """Finds the meshes of all devices in order. Raises Refused for a mesh with devices outside the module."""
    found: dict[str, Axes] = {}
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name != "sdy.mesh":
            continue
        name: str = op.operation.attributes["sym_name"].value
        mesh = op.operation.attributes["mesh"]
        axes, devices = read_axes(mesh), [int(d) for d in bare_sdy.MeshAttr(mesh).device_ids]
        size = 1
        for _, length in axes:
            size *= length
        if not axes and len(devices) <= 1 and all(0 <= d < partitions for d in devices):
            continue  # an empty mesh or a mesh of one device, which Shardy adds
        if size != partitions or (devices and sorted(devices) != list(range(partitions))):
            raise Refused(f"has a mesh @{name} of {size} devices, its partitions are {partitions}")
        if not devices:
            found[name] = axes
    return found


def _described(main: Operation, key: str, count: int) -> list[Any]:
    """Lists the attributes of arguments or results. MLIR omits a list in which all are empty."""
    if key in main.attributes:
        return list(main.attributes[key])
    return [bare_ir.DictAttr.get({}, context=main.context)] * count


def _check_aliases(arguments: list[Any], stated: Stated) -> None:
    taken: set[int] = set()
    for i, attribute in enumerate(arguments):
        if _ALIAS not in attribute:
            continue
        alias = attribute[_ALIAS]
        result = int(alias.value) if isinstance(alias, bare_ir.IntegerAttr) else -1
        if not 0 <= result < len(stated.outputs) or result in taken:
            raise Refused(f"donates argument {i} to a result that does not exist or is already used: {str(alias)[:40]}")
        same = stated.outputs[result] == stated.inputs[i] and stated.out_layouts[result] == stated.in_layouts[i]
        if not same:
            raise Refused(f"donates argument {i} to result {result}, which has another type or sharding")
        taken.add(result)


def _check_names(attribute: Attribute, what: str) -> None:
    for named in attribute:
        name = named.name
        if name in _DEFAULTS:
            if not isinstance(named.attr, bare_ir.StringAttr) or named.attr.value != _DEFAULTS[name]:
                raise Refused(f"has {name} = {str(named.attr)[:40]} on {what}, and a plan allows only the default")
        elif name not in _KNOWN and not name.startswith("jax."):
            raise Refused(f"has {name} on {what}, which JAX does not write")


def _check_layout(
    attribute: Attribute, what: str, array: ArrayType, dims: Dims, meshes: dict[str, Axes], stated: Stated
) -> None:
    if _SHARDING not in attribute:
        if stated.partitions > 1:
            raise Refused(f"does not state how {what} is split")
        return
    try:
        sharding = bare_sdy.TensorShardingAttr(attribute[_SHARDING])
    except ValueError:
        raise Refused(f"has an invalid sharding on {what}") from None
    if not is_closed(sharding) or has_sub_axes(sharding) or len(sharding.unreduced_axes):
        raise Refused(f"does not decide how {what} is split")
    placed = read_sharding(sharding)
    if meshes.get(placed.mesh) != stated.axes:
        raise Refused(f"has {what} on a mesh that is not the plan's: @{placed.mesh}")
    rank = len(array.shape)
    if placed.dims + ((),) * (rank - len(placed.dims)) != dims:  # a PRNG key is stored with one more dimension
        raise Refused(f"has {what} split differently than the plan states: {str(sharding)[:120]}")
