"""Converts each distinct fragment of an MPMD program to a StableHLO module. A fragment is the computation of one stage
for one microbatch. Equal fragments share one module. `read.py` uses it.

A program has one fragment for each stage of each microbatch, and most fragments are equal. They are compared as
bytecode without locations. Each distinct one is built once, and an equal one costs no more than its bytecode.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pathways.compiler.frontends.builder import CalledComputation
from pathways.compiler.frontends.mpmd.errors import MpmdUnsupported
from pathways.compiler.frontends.mpmd.types import SHARDING, MeshTensor, dims_of
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.host_callbacks import calls_back, write_callbacks
from pathways.dialect.ir.bodies import functions_called_by
from pathways.dialect.ir.functions import described, functions_of
from pathways.dialect.mlir import Context, Module, Operation, Value, bytecode, func, ir, parse, passmanager, where_of
from pathways.dialect.sdy import Placed, create_mesh, mesh_ops_of, meshes_of, write_sharding
from pathways.dialect.sharding import Axes, Dims, replicated, size_of_axes

MESH = "mesh"
"""The symbol of a computation's own mesh."""
_LEFT_OUT = ("mesh_shape", "reserved_hbm_bytes", "arg_attrs", "res_attrs", "xla_tpu_user_reserved_hbm_bytes")


@dataclass(frozen=True)
class Signature:
    """The mesh of a computation, and the shardings of its inputs and results; None if undecided."""

    axes: Axes
    ins: tuple[Dims | None, ...]
    outs: tuple[Dims | None, ...]


class Computations:
    """The distinct computations of one program, each built at its first call."""

    def __init__(self, module: Module, bare: Module, callbacks: tuple[int, ...] | None) -> None:
        """`bare` is the module without locations. `callbacks` are its Python functions; None if unknown."""
        self._functions, self._bare = functions_of(module.operation), functions_of(bare.operation)
        self._meshes, self._mesh_ops = meshes_of(module.operation), mesh_ops_of(module.operation)
        self._callbacks = callbacks
        self._by_callee: dict[tuple[str, Signature], CalledComputation] = {}
        self._by_content: dict[tuple[str, Signature], CalledComputation] = {}

    def of_callee(self, callee: str, name: str, signature: Signature) -> CalledComputation:
        """Returns the computation of a `mpmd.fragment_call`."""
        key = callee, signature
        if key not in self._by_callee:
            bare = _cloned(self._bare[callee])
            self._by_callee[key] = self._shared(bare, lambda: _cloned(self._functions[callee]), name, signature)
        return self._by_callee[key]

    def stated(self, callee: str, signature: Signature) -> Signature:
        """Returns the function's own signature if it states one over another mesh of the same devices.

        A program may use the devices of a mesh as 4 in one fragment, and as 2 x 2 in another.
        """
        function = self._functions[callee]
        named = self._named_in(function)
        several = {self._meshes[m] for m in named if self._meshes[m]}
        if len(several) != 1:
            return signature
        (axes,) = several
        if _agree(axes, signature.axes) or size_of_axes(axes) != size_of_axes(signature.axes):
            return signature
        sides: list[tuple[Dims, ...]] = []
        for key, dims in (("arg_attrs", signature.ins), ("res_attrs", signature.outs)):
            own = [_stated(given, d) for given, d in zip(described(function.opview, key, len(dims)), dims, strict=True)]
            sides.append(tuple(d for d in own if d is not None))
            if len(sides[-1]) < len(dims):
                return signature
        return Signature(axes, *sides)

    def of_region(self, op: Any, bare: Any, name: str, signature: Signature) -> CalledComputation:
        """Returns the computation of a `mpmd.fragment`. `bare` is `op` without locations; its region is consumed."""
        return self._shared(_outlined(bare), lambda: _outlined(op), name, signature)

    def _shared(
        self, bare: "_Drafted", draft: "Callable[[], _Drafted]", name: str, signature: Signature
    ) -> CalledComputation:
        _sign(bare[1], signature)
        key = hashlib.sha256(bytecode(bare[1])).hexdigest(), signature
        if key not in self._by_content:
            self._by_content[key] = self._made(*draft(), name, signature)
        return self._by_content[key]

    def _made(self, scratch: Module, main: Operation, name: str, signature: Signature) -> CalledComputation:
        where = where_of(main)
        self._add_helpers(scratch, main, {})
        named = self._named_in(scratch.operation)
        _sign(main, signature)
        raw = bytecode(self._with_its_mesh(scratch, named, name, signature.axes, where).operation)
        if calls_back(raw):
            raw = self._calling_back(raw, name, scratch.context, where)
        return CalledComputation(name, raw)

    def _named_in(self, operation: Operation) -> set[str]:
        """Returns the meshes that shardings inside an operation name."""
        printed = str(operation)
        return {symbol for symbol in self._meshes if re.search(_reference(symbol), printed)}

    def _add_helpers(self, scratch: Module, function: Operation, added: dict[str, Any]) -> None:
        """Adds the functions that a function calls, recursively."""
        for name in functions_called_by(function):
            if name not in added:
                helper = self._functions[name].clone(ip=ir.InsertionPoint(scratch.body))
                helper.attributes["sym_visibility"] = ir.StringAttr.get("private")
                added[name] = helper
                self._add_helpers(scratch, helper, added)

    def _with_its_mesh(self, scratch: Module, named: set[str], name: str, axes: Axes, where: Where | None) -> Module:
        """Adds the computation's mesh, and renames its `named` meshes to it.

        Two equal meshes with different names do not compile.
        """
        empty = {m for m in named if not self._meshes[m]}
        if others := {m for m in named - empty if not _agree(self._meshes[m], axes)}:
            rule, advice = f"the mesh of the fragment, {_shown(axes)}", "one mesh per fragment: let Shardy partition f"
            have = ", ".join(f"{m} {_shown(self._meshes[m])}" for m in sorted(others))
            what = f"a sharding in {name} over another mesh"
            raise PathwaysError(MpmdUnsupported(what=what, have_=have, rule=rule, advice=advice, where=where))
        top = ir.InsertionPoint.at_block_begin(scratch.body)
        create_mesh(MESH, axes, top)
        for symbol in sorted(empty):  # shardings on one device name them; they have no axes
            self._mesh_ops[symbol].clone(ip=top)
        renamed = named - empty - {MESH}
        if not renamed:
            return scratch
        text = scratch.operation.get_asm(enable_debug_info=True)
        text = re.sub("|".join(map(_reference, sorted(renamed))), f"@{MESH}", text)
        return parse(text, scratch.context, name)

    def _calling_back(self, raw: bytes, name: str, context: Context, where: Where | None) -> bytes:
        """Adds the numbers of the Python functions that a module calls. Raises PWC0122 if they are unknown."""
        if not self._callbacks:
            rule = "the lowered object, which contains the Python functions"
            advice = "pw.from_mpmd(mpmd.jit(f, config).lower(...)), in the process that traced f"
            what = f"the host callback in {name}"
            have = "text, which contains only the numbers of callbacks"
            raise PathwaysError(MpmdUnsupported(what=what, have_=have, rule=rule, advice=advice, where=where))
        module = parse(raw, context, name)
        write_callbacks(module.operation, self._callbacks)
        return bytecode(module.operation)


def call_signature(axes: Axes, ins: tuple[MeshTensor, ...], outs: tuple[MeshTensor, ...], decided: bool) -> Signature:
    """Returns the signature of a call.

    If `decided` (after Shardy's PARTITION), values without a sharding are replicated. Before it, such values are open,
    and stated shardings are the start of propagation.
    """
    if not decided:
        return Signature(axes, tuple(v.dims for v in ins), tuple(v.dims for v in outs))
    sides = (tuple(closed_dims(v) for v in side) for side in (ins, outs))
    return Signature(axes, *sides)


def closed_dims(value: MeshTensor) -> Dims:
    return replicated(len(value.type.shape)) if value.dims is None else value.dims


_Drafted: TypeAlias = tuple[Module, Operation]
"""A module, and its function that becomes @main."""


def _cloned(function: Operation) -> _Drafted:
    scratch = ir.Module.create()
    return scratch, function.clone(ip=ir.InsertionPoint(scratch.body))


def _outlined(op: Any) -> _Drafted:
    """Moves the region of a fragment into a function. The region is isolated from values above."""
    scratch = ir.Module.create()
    block = op.operation.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    values: list[Value] = list(end.operands)
    type_ = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in values])
    function = func.FuncOp("main", type_, ip=ir.InsertionPoint(scratch.body), loc=op.operation.location)
    block.append_to(function.operation.regions[0])
    func.ReturnOp(values, ip=ir.InsertionPoint(end), loc=end.location)
    end.erase()
    return scratch, function.operation


def strip_locations(module: Module) -> None:
    """Removes all locations, so that equal text means equal computations."""
    passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def _sign(main: Operation, signature: Signature) -> None:
    """Writes the name and the decided shardings. Undecided values keep the function's own shardings."""
    sides = (("arg_attrs", signature.ins), ("res_attrs", signature.outs))
    own = {key: described(main.opview, key, len(dims)) for key, dims in sides}
    for name in _LEFT_OUT:
        if name in main.attributes:
            del main.attributes[name]
    main.attributes["sym_name"] = ir.StringAttr.get("main")
    main.attributes["sym_visibility"] = ir.StringAttr.get("public")
    for key, dims in sides:
        signed = [_signed(given, d) for given, d in zip(own[key], dims, strict=True)]
        main.attributes[key] = ir.ArrayAttr.get(signed)


def _signed(own: Any, dims: Dims | None) -> Any:
    if dims is not None:
        return ir.DictAttr.get({SHARDING: write_sharding(Placed(MESH, dims))})
    return ir.DictAttr.get({SHARDING: own[SHARDING]} if SHARDING in own else {})


def _stated(own: Any, dims: Dims | None) -> Dims | None:
    """Returns the sharding that a function states for a value. A replicated value may have none in the text."""
    if SHARDING in own:
        return dims_of(own[SHARDING])
    return None if dims is None or any(dims) else dims


def _reference(symbol: str) -> str:
    """Returns a pattern for references to a mesh in shardings, quoted if its symbol needs quotes; needs a context."""
    return re.escape(str(ir.FlatSymbolRefAttr.get(symbol))) + r"(?=[,>\s])"


def _agree(one: Axes, other: Axes) -> bool:
    """Whether two meshes are the same. Axes of size 1 split nothing, and are ignored."""
    return [a for a in one if a[1] > 1] == [a for a in other if a[1] > 1]


def _shown(axes: Axes) -> str:
    return "x".join(f"{name}={size}" for name, size in axes) or "empty"
