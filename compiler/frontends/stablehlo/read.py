"""Imports one StableHLO module as a program with a single call.

`pathways.ifrt_proxy` calls it for each module that a client of the IFRT proxy compiles.

The client's shardings stay in the module. The pass `propagate-shardings` decides the others. The module comes from
another process: this code parses it, and never runs it.
"""

from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.builder import Built, CalledComputation, ProgramBuilder, SliceSpec
from pathways.compiler.frontends.stablehlo.errors import unsupported
from pathways.compiler.frontends.stablehlo.meshes import ModuleMeshes, OnMesh, every_operation
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, from_mlir, is_array_type
from pathways.dialect.errors import UnparsableIR
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.mlir import Module, Operation, bytecode, from_portable, ir
from pathways.dialect.plan.modules.custom_calls import allowed_by_user, is_known
from pathways.dialect.plan.signature import POSITION, Parameter
from pathways.dialect.sdy import Placed
from pathways.dialect.trees import LEAF, Tree

_ALIASED, _DONOR = "tf.aliasing_output", "jax.buffer_donor"
"""Marks of donated arguments: for a certain result, or for any."""
_PARTITIONS, _REPLICAS = "mhlo.num_partitions", "mhlo.num_replicas"


@dataclass(frozen=True)
class ImportedModule:
    """The program of one module, and what a client must know of it."""

    name: str
    built: Built
    devices: int
    """Number of its devices."""
    donated: tuple[int, ...]
    """The numbers of the arguments that it overwrites."""
    donors: tuple[int, ...]
    """The subset of `donated` for which XLA needs a result of as many bytes on each device."""
    ins: tuple[OnMesh | None, ...]
    outs: tuple[OnMesh | None, ...]
    """The shardings of arguments and results that the module states."""


def read_stablehlo(artifact: bytes, platform: str, kept: frozenset[int] = frozenset()) -> ImportedModule:
    """Imports a portable artifact of StableHLO. Arguments numbered in `kept` are not overwritten.

    Raises PWC0702 for other bytes, PWC0129 for an unsupported module.
    """
    try:
        module = from_portable(artifact)
    except (ValueError, RuntimeError, ir.MLIRError) as error:
        raise PathwaysError(UnparsableIR(name="the module of a client", message=str(error).strip())) from None
    with module.context, ir.Location.unknown():
        return _read(module, platform, kept)


def _read(module: Module, platform: str, kept: frozenset[int]) -> ImportedModule:
    name = str(module.operation.attributes["sym_name"].value)
    if (replicas := _number(module, _REPLICAS)) != 1:
        raise unsupported(name, f"{replicas} replicas", "one replica, partitioned over its devices")
    devices = _number(module, _PARTITIONS)
    main: Any = main_of(module.operation)
    for type_ in (*main.type.inputs, *main.type.results):
        if not is_array_type(type_):
            raise unsupported(name, f"an argument or result of type {type_}", "arrays of static shape")
    _check_custom_calls(name, module.operation, platform)
    aliased, donors = (_marked(main, key, kept) for key in (_ALIASED, _DONOR))
    donated = tuple(sorted({*aliased, *donors}))
    builder = ProgramBuilder(name, platform)
    meshes = ModuleMeshes(name, module, main, devices)
    stated_ins = tuple(meshes.stated(main, "arg_attrs", main.type.inputs))
    stated_outs = tuple(meshes.stated(main, "res_attrs", main.type.results))
    spec = SliceSpec(0, devices)
    mesh = builder.mesh(spec, meshes.main)
    ins, outs = (
        [
            other and Placed(builder.mesh(spec, other.mesh), other.dims)
            for other in meshes.take_others(main, side, types)
        ]
        for side, types in (("arg_attrs", main.type.inputs), ("res_attrs", main.type.results))
    )
    meshes.forget_others()
    _strip(main)
    taken: list[tuple[Argument, ArrayType]] = []
    for i, (type_, placed) in enumerate(zip(main.type.inputs, ins, strict=True)):
        on = mesh if placed is None else placed.mesh
        taken.append((Argument(f"arg{i}", mesh=on, sharding=placed, donate=i in donated), from_mlir(type_)))
    body = builder.main(taken)
    operands = [v if p is None else body.transfer(v, mesh) for v, p in zip(body.arguments, ins, strict=True)]
    results = body.call(CalledComputation(name, bytecode(module.operation)), operands, mesh)
    results = [v if p is None else body.transfer(v, p.mesh, p.dims) for v, p in zip(results, outs, strict=True)]
    body.returns(results, [Argument(f"result{i}") for i in range(len(results))])
    parameters = tuple(Parameter(f"arg{i}", POSITION) for i in range(len(taken)))
    built = builder.finish(Tree("tuple", (LEAF,) * len(taken)), Tree("tuple", (LEAF,) * len(results)), parameters)
    return ImportedModule(name, built, devices, donated, donors, stated_ins, stated_outs)


def _number(module: Module, name: str) -> int:
    attributes = module.operation.attributes
    return int(attributes[name].value) if name in attributes else 1


def _check_custom_calls(name: str, module: Operation, platform: str) -> None:
    """Raises PWC0129 for native code that JAX does not call, and for calls of Python, which name addresses."""
    for op in every_operation(module):
        if op.name == "stablehlo.custom_call":
            target = str(op.attributes["call_target_name"].value)
            if not is_known(target, platform, allowed_by_user()):
                rule = "custom calls that JAX makes without Python"
                raise unsupported(name, f"a custom call of {target[:100]}", rule)


def _marked(main: Any, key: str, kept: frozenset[int]) -> tuple[int, ...]:
    attributes = described(main, "arg_attrs", len(main.type.inputs))
    return tuple(i for i, given in enumerate(attributes) if key in given and i not in kept)


def _strip(main: Any) -> None:
    """Removes donations from the function, because the plan decides which buffers a run overwrites."""
    attributes = main.operation.attributes
    if "arg_attrs" not in attributes:
        return
    kept = [{n.name: n.attr for n in given if n.name not in (_ALIASED, _DONOR)} for given in attributes["arg_attrs"]]
    attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(given) for given in kept])
