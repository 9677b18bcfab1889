"""The ops of the `pw` dialect. This module is found by MLIR under the namespace `pw` (see mlir.py).

One top-level module holds a program in every phase. It has `pw.slice` and `pw.mesh` symbols, and later `pw.island`
symbols. Each distinct computation is a nested `module @name` of StableHLO. The program is a `func.func` marked
`pw.program`. The last phase adds one `pw.plan` for each island. Bodies of loops and branches on data are functions
marked `pw.body`: each is a program over the same slices, with its own computations and plans. `arguments.py` has the
attributes of arguments and results.
"""

from typing import Any

from pathways.dialect.dtypes import ArrayType, from_mlir, is_array_type
from pathways.dialect.ir.declare import (
    FLAG,
    INTEGER,
    INTEGERS,
    NUMBER,
    STRING,
    SYMBOL,
    Arity,
    Field,
    Kind,
    OptionalField,
    PwOp,
    is_tuple_of,
)
from pathways.dialect.memo import remembered
from pathways.dialect.mlir import ir, register_dialect, register_operation, sdy
from pathways.dialect.ranges import read_ranges, write_ranges
from pathways.dialect.sdy import Placed, has_sub_axes, read_axes, read_shardings, write_axes, write_shardings

AXES = Kind[tuple[tuple[str, int], ...]]("axes", write_axes, read_axes, sdy.MeshAttr.isinstance, is_tuple_of(tuple))
STRINGS = Kind[tuple[str, ...]](
    "strings",
    lambda v: ir.ArrayAttr.get([ir.StringAttr.get(s) for s in v]),
    remembered(lambda a: tuple(s.value for s in a)),
    lambda a: isinstance(a, ir.ArrayAttr) and all(isinstance(s, ir.StringAttr) for s in a),
    is_tuple_of(str),
)
SYMBOLS = Kind[tuple[str, ...]](
    "@symbols",
    lambda v: ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(s) for s in v]),
    remembered(lambda a: tuple(s.value for s in a)),
    lambda a: isinstance(a, ir.ArrayAttr) and all(isinstance(s, ir.FlatSymbolRefAttr) for s in a),
    is_tuple_of(str),
)
TYPES = Kind[tuple[ArrayType, ...]](
    "types",
    lambda v: ir.ArrayAttr.get([ir.TypeAttr.get(ir.Type.parse(t.mlir)) for t in v]),
    remembered(lambda a: tuple(from_mlir(t.value) for t in a)),
    remembered(
        lambda a: isinstance(a, ir.ArrayAttr) and all(isinstance(t, ir.TypeAttr) and is_array_type(t.value) for t in a)
    ),
    is_tuple_of(ArrayType),
)
ANY = Arity(None)


def is_sharding(attribute: Any) -> bool:
    """Whether an attribute is a sharding that `Placed` can say: by the name of its mesh, and of whole axes."""
    if not sdy.TensorShardingAttr.isinstance(attribute):
        return False
    return isinstance(sdy.TensorShardingAttr(attribute).mesh_or_ref, ir.FlatSymbolRefAttr) and not has_sub_axes(
        attribute
    )


def _are_shardings(attribute: Any) -> bool:
    per_value = sdy.TensorShardingPerValueAttr
    return per_value.isinstance(attribute) and all(map(is_sharding, per_value(attribute).shardings))


SHARDINGS = Kind[tuple[Placed, ...]](
    "shardings", write_shardings, read_shardings, remembered(_are_shardings), is_tuple_of(Placed)
)


SHARDING_FIELDS = frozenset({"in_shardings", "out_shardings", "sharding", "source"})
"""The fields of nodes that are shardings."""


def _read_devices(attribute: Any) -> tuple[int, ...]:
    return INTEGERS.read(attribute) if INTEGERS.accepts(attribute) else read_ranges(attribute.value)


def _are_devices(attribute: Any) -> bool:
    try:
        _read_devices(attribute)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


DEVICES = Kind[tuple[int, ...]](
    "devices", lambda v: STRING.write(write_ranges(v)), remembered(_read_devices), _are_devices, is_tuple_of(int)
)
"""Devices in order, `0:2048` or `3,1,0`: of the same size for any number of neighbors. An array is read, too."""


class SliceOp(PwOp):
    """A virtual set of devices that the user asked for; phase `place` binds it to devices of one island."""

    OPERATION_NAME = "pw.slice"
    sym_name = Field(STRING, "the symbol")
    devices = Field(INTEGER, "the number of devices")
    prefer = OptionalField(STRING, "the platform that the user prefers; others are used if it is missing")
    kind = OptionalField(STRING, "the device kind it must have")
    near = OptionalField(SYMBOL, "another slice that must be on the same island")
    pin = OptionalField(STRING, "the name of the island it must be on")
    shape = OptionalField(INTEGERS, "the 2-D or 3-D arrangement the user asked for")
    island = OptionalField(SYMBOL, "the island it is bound to (from place)")
    device_ids = OptionalField(DEVICES, "the devices of the island it is bound to, in order (from place)")
    reason = OptionalField(STRING, "the reason for the binding (from place)")
    runner_up = OptionalField(STRING, "the best other binding, and its cost (from place)")


class MeshOp(PwOp):
    """Named axes over devices of a slice; what shardings refer to."""

    OPERATION_NAME = "pw.mesh"
    sym_name = Field(STRING, "the symbol")
    slice = Field(SYMBOL, "the slice")
    axes = Field(AXES, "the axes, major to minor")
    devices = Field(DEVICES, "positions in the slice, row-major over the axes")


class IslandOp(PwOp):
    """Devices joined by a fast interconnect; an abstract one, mapped to a physical one when a plan is loaded."""

    OPERATION_NAME = "pw.island"
    name = Field(STRING, "the name the topology gives it; may be equal to a symbol")
    hosts = Field(INTEGER, "the number of hosts")
    devices = Field(INTEGER, "the number of devices per host")
    kind = Field(STRING, "the device kind, or `any`")
    memory = OptionalField(INTEGER, "bytes a device; absent: not checked")
    flops = OptionalField(NUMBER, "flop/s a device")
    ici_gbps = OptionalField(NUMBER, "GB/s between devices of the island")
    efficiency = OptionalField(NUMBER, "the fraction of its flop/s that a device reaches")
    memory_gbps = OptionalField(NUMBER, "GB/s of a device's memory")
    call_us = OptionalField(NUMBER, "a device's overhead of a computation, in microseconds")
    host_us = OptionalField(NUMBER, "microseconds in which a host enqueues an instruction")
    ici_us = OptionalField(NUMBER, "latency between devices of the island, in microseconds")


class CallOp(PwOp):
    """One run of one computation, sharded over a mesh: one node of the program, whatever the number of devices."""

    OPERATION_NAME = "pw.call"
    operands_ = ANY
    results_ = ANY
    callee = Field(SYMBOL, "the nested module")
    mesh = Field(SYMBOL, "the mesh it runs on")
    gathered = OptionalField(FLAG, "made of operations outside of placed calls; its data chose its mesh, not the user")
    in_shardings = OptionalField(SHARDINGS, "the sharding each operand must have (from shard)")
    out_shardings = OptionalField(SHARDINGS, "the sharding of each result (from shard)")
    island = OptionalField(SYMBOL, "the island it runs on (from place)")
    action = OptionalField(STRING, "its place in a pipeline: stage, F, B, I or W, microbatch (2F3)")
    dispatch = OptionalField(STRING, "parallel or sequential (from schedule)")
    step = OptionalField(INTEGER, "its position in the order of the program (from schedule)")
    parts = OptionalField(STRINGS, "the calls that were merged into it: action, name and line of each (from schedule)")
    made_by = OptionalField(INTEGERS, "for each result, the index of the part that computes it (from schedule)")
    again = OptionalField(FLAG, "computes again values that were dropped to save memory (from schedule)")


class TransferOp(PwOp):
    """Moves a value to another mesh or sharding. From phase `transfer` on, each move between devices is such an op."""

    OPERATION_NAME = "pw.transfer"
    operands_ = Arity(1)
    results_ = Arity(1)
    mesh = Field(SYMBOL, "the mesh it goes to")
    user = OptionalField(FLAG, "the user wrote it: jax.device_put, reshard or with_sharding_constraint")
    sharding = OptionalField(SHARDINGS, "the sharding it gets: one entry (the user's, or from shard)")
    source = OptionalField(SHARDINGS, "the sharding it comes from: one entry (from transfer)")
    route = OptionalField(STRING, "local (same devices), ici (same island) or dcn (from transfer)")
    bytes = OptionalField(INTEGER, "bytes that change device (from transfer)")
    reason = OptionalField(STRING, "why it is needed (from transfer)")
    runner_up = OptionalField(STRING, "the best alternative, and its cost (from transfer)")
    step = OptionalField(INTEGER, "its position in the order of the program (from schedule)")


class ControlFlowOp(PwOp):
    """Irregular control flow (paper, section 4.5): which calls run is data. Base of `pw.cond` and `pw.while`."""

    operands_ = ANY
    results_ = ANY
    bodies = Field(SYMBOLS, "functions marked pw.body; each takes the same operands")
    meshes = Field(SYMBOLS, "the mesh on which each result lives")
    in_shardings = OptionalField(SHARDINGS, "the sharding each operand must have (from shard)")
    out_shardings = OptionalField(SHARDINGS, "the sharding of each result (from shard)")
    dispatch = OptionalField(STRING, "sequential: only ops that read its results wait for it (from schedule)")
    step = OptionalField(INTEGER, "its position in the order of the program (from schedule)")


class CondOp(ControlFlowOp):
    """Run one of the bodies: the first operand is its number, the others are what all bodies take."""

    OPERATION_NAME = "pw.cond"


class WhileOp(ControlFlowOp):
    """Run the second body for as long as the first says so. The last operands are carried: it makes them anew."""

    OPERATION_NAME = "pw.while"


class PlanOp(PwOp):
    """The instruction stream of one island: pw.buffers, then pw.run, pw.send, pw.recv, pw.copy, pw.branch, pw.free."""

    OPERATION_NAME = "pw.plan"
    regions_ = Arity(1)
    island = Field(SYMBOL, "the island")
    peak_bytes = Field(INTEGER, "the most bytes alive on one device of the island")
    body = OptionalField(SYMBOL, "the body whose stream it is; absent: the program's")


class BuffersOp(PwOp):
    """Buffers of an island that are born together: slots, sizes, a birth, and the last use of each."""

    OPERATION_NAME = "pw.buffers"
    slot = Field(INTEGER, "the index of the first buffer in the slot table; the others follow")
    name = Field(STRING, "the user's name of the value, or the call that makes them")
    role = Field(STRING, "input, constant, copy (moved there) or value")
    owner = Field(STRING, "the owner in memory reports: an argument, activations of microbatch 3, ...")
    types = Field(TYPES, "the global types")
    shards = Field(TYPES, "the types on one device")
    sharding = Field(SHARDINGS, "one entry each")
    bytes = Field(INTEGERS, "bytes on one device")
    birth = Field(INTEGER, "the step that writes them; -1: written before the first step")
    deaths = Field(INTEGERS, "the last use of each; -1: kept")


class RunOp(PwOp):
    """Enqueue one computation on its gang of devices."""

    OPERATION_NAME = "pw.run"
    step = Field(INTEGER, "its position in the order of the program")
    callee = Field(SYMBOL, "the nested module")
    mesh = Field(SYMBOL, "the mesh")
    inputs = Field(INTEGERS, "slots read")
    outputs = Field(INTEGERS, "slots written")
    donated = Field(INTEGERS, "positions in `inputs` whose buffers the computation overwrites")
    temporaries = OptionalField(INTEGER, "bytes on one device that the executable needs while it runs")
    action = OptionalField(STRING, "its place in a pipeline: stage, F, B, I or W, microbatch (2F3)")
    parts = OptionalField(STRINGS, "the calls that were merged into it: action, name and line of each")


class SendOp(PwOp):
    """Offer a buffer to another island."""

    OPERATION_NAME = "pw.send"
    step = Field(INTEGER, "its position in the order of the program")
    channel = Field(INTEGER, "unique in the plan; the other island receives on it")
    slot = Field(INTEGER, "the buffer sent")
    to = Field(SYMBOL, "the other island")


class RecvOp(PwOp):
    """Take a buffer from another island."""

    OPERATION_NAME = "pw.recv"
    step = Field(INTEGER, "its position in the order of the program")
    channel = Field(INTEGER, "the channel of the matching pw.send")
    slot = Field(INTEGER, "the buffer written")
    source = Field(SYMBOL, "the other island")


class CopyOp(PwOp):
    """Move or reshard a buffer inside an island."""

    OPERATION_NAME = "pw.copy"
    step = Field(INTEGER, "its position in the order of the program")
    source = Field(INTEGER, "the buffer read")
    target = Field(INTEGER, "the buffer written")


class BranchOp(PwOp):
    """Await what decides, then run a body: one instruction, in the streams of all islands that have a part in it."""

    OPERATION_NAME = "pw.branch"
    step = Field(INTEGER, "its position in the order of the program")
    kind = Field(STRING, "cond or while")
    bodies = Field(SYMBOLS, "the bodies, as of pw.cond and pw.while")
    inputs = Field(INTEGERS, "slots of this island that are read")
    taken = Field(INTEGERS, "the operand number of each; the controller waits for operand 0 of a cond")
    outputs = Field(INTEGERS, "slots of this island that are written")
    made = Field(INTEGERS, "the result number of each")
    donated = Field(INTEGERS, "positions in `inputs` whose buffers the loop overwrites")
    meshes = Field(SYMBOLS, "meshes with all devices of this island that bodies work on")
    temporaries = OptionalField(INTEGER, "bytes on one device that the largest body needs besides inputs and outputs")


class FreeOp(PwOp):
    """Drop a buffer after its last use."""

    OPERATION_NAME = "pw.free"
    step = Field(INTEGER, "its position in the order of the program")
    slots = Field(INTEGERS, "the buffers dropped")


STREAM_OPS: tuple[type[PwOp], ...] = (BuffersOp, RunOp, SendOp, RecvOp, CopyOp, BranchOp, FreeOp)
"""Ops allowed in the stream of an island."""
OPS: tuple[type[PwOp], ...] = (
    SliceOp,
    MeshOp,
    IslandOp,
    CallOp,
    TransferOp,
    CondOp,
    WhileOp,
    PlanOp,
    *STREAM_OPS,
)


@register_dialect
class _Dialect(ir.Dialect):
    DIALECT_NAMESPACE = "pw"


for _op in OPS:
    register_operation(_Dialect, _op)
