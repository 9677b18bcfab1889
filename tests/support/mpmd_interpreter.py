"""Interprets a module of Shardy's MPMD dialect literally: on real devices, one op at a time, with donation.

The interpreter reads only the module: meshes come from the topology attribute, layouts from the types, and functions
are compiled unchanged. A donated operand is deleted, so that a later use of it fails.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from pathways.dialect import shardy_mpmd
from pathways.dialect.dtypes import ArrayType, from_mlir, numpy_dtype
from pathways.dialect.mlir import Operation, ir, make_context, parse, passmanager
from pathways.dialect.sharding import Axes, Dims, MeshSpec, Sharding
from pathways.runtime.host.devices import pjrt

_VALUE = re.compile(r'!mpmd\.mesh_tensor<"([^"]+)", (tensor<.*?>), sharding=<@[\w"]+, \[(.*)\]>>')
_MESH = re.compile(r'<"([^"]+)" : <\[([^\]]*)\]>>')
_AXIS = re.compile(r'"([^"]+)"=(\d+)')


class MpmdInterpreter:
    """Runs the @main of a module."""

    def __init__(self, source: str) -> None:
        self.context = make_context()
        shardy_mpmd.register(self.context)
        self.source = source
        self.module = parse(source, self.context)
        (self.main,) = (o for o in self.module.body.operations if _symbol(o.operation) == "main")
        self.meshes: dict[str, Axes] = {}
        for name, axes in _MESH.findall(str(self.main.attributes["topology"])):
            self.meshes[name] = tuple((axis, int(size)) for axis, size in _AXIS.findall(axes))
        sizes = {name: int(np.prod([n for _, n in axes], dtype=int)) for name, axes in self.meshes.items()}
        devices = iter(_devices(sum(sizes.values())))
        self.devices = {name: [next(devices) for _ in range(size)] for name, size in sizes.items()}
        self.compiled: dict[tuple[str, str], Any] = {}

    @property
    def names(self) -> list[str]:
        """Names of the arguments of @main, from their locations."""
        found = (re.match(r'loc\("(.*)"\)$', str(a.location)) for a in self.main.regions[0].blocks[0].arguments)
        return ["" if match is None else match[1] for match in found]

    def run(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Runs @main with arguments given by name; returns the results as host arrays."""
        values: dict[Any, Any] = {}
        block = self.main.regions[0].blocks[0]
        for name, value in zip(self.names, block.arguments, strict=True):
            values[value] = self.put(np.asarray(arguments[name]), value)
        *operations, end = (o.operation for o in block.operations)
        for op in operations:
            operands = [values[v] for v in op.operands]
            if op.name == "mpmd.transfer":
                made = [self.put(pjrt.to_host(operands[0]), op.results[0])]
            else:
                assert op.name == "mpmd.fragment_call"
                made = self.call(op, operands)
            values.update(zip(op.results, made, strict=True))
        return [pjrt.to_host(values[v]) for v in end.operands]

    def place(self, value: Any) -> tuple[ArrayType, Sharding, str]:
        found = _VALUE.fullmatch(str(value.type))
        assert found is not None, value.type
        mesh = MeshSpec(self.meshes[found[1]], tuple(range(len(self.devices[found[1]]))))
        dims: Dims = tuple(tuple(re.findall(r'"([^"]+)"', part)) for part in re.findall(r"\{([^}]*)\}", found[3]))
        with self.context:
            return from_mlir(ir.Type.parse(found[2])), Sharding(mesh, dims), found[1]

    def put(self, host: Any, value: Any) -> Any:
        type_, where, home = self.place(value)
        assert host.dtype == numpy_dtype(type_.dtype) and host.shape == type_.shape
        devices = self.devices[home]
        return pjrt.putter(type_, where, pjrt.named_sharding(where.mesh, where.dims, devices), devices)(host)

    def call(self, op: Operation, operands: Sequence[Any]) -> list[Any]:
        key = op.attributes["callee"].value, op.attributes["mesh_name"].value
        if key not in self.compiled:
            self.compiled[key] = pjrt.compile_module(self.alone(key[0]), self.devices[key[1]])
        places = [self.place(v) for v in op.results]
        shardings = [pjrt.named_sharding(w.mesh, w.dims, self.devices[home]) for _, w, home in places]
        handlers = pjrt.result_handlers([type_ for type_, _, _ in places], shardings)
        if not operands and not places:
            return []
        return list(self.compiled[key].execute_sharded(list(operands)).consume_with_handlers(handlers))

    def alone(self, callee: str) -> str:
        """Returns a module with the function as @main, the meshes, and the functions that it calls."""
        module = parse(self.source, self.context)
        for op in [o.operation for o in module.body.operations]:
            if op.name != "func.func":
                continue
            if "mesh_shape" in op.attributes:
                if _symbol(op) != callee:
                    op.erase()
                    continue
                del op.attributes["mesh_shape"]
                with self.context:
                    op.attributes["sym_name"] = ir.StringAttr.get("main")
            elif _symbol(op) == "main":
                op.erase()
        with self.context:
            passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
        return module.operation.get_asm()


def _symbol(op: Operation) -> str:
    return op.attributes["sym_name"].value


@cache
def _devices(count: int) -> list[Any]:
    return pjrt.make_devices(count)
