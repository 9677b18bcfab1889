"""Rewrites a sharded StableHLO module as a module for one device, if no device needs data of another. The pass
`per_device` calls it, because it is cheaper to start such devices one by one.

Starting a gang costs more than starting its devices one by one (seven times on CPU). A gang is only worth it if the
devices meet in a collective. From the shardings of the arguments, `localize` derives the sharding of every value, as
long as each operation needs only local shards. It then writes the computation again, for one device and its shards. If
this fails, as with any collective, the result is None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pathways.compiler.computations.elementwise import ELEMENTWISE
from pathways.compiler.computations.flops import flops_of
from pathways.compiler.computations.inline import copy_into, inlined
from pathways.compiler.computations.merge import count_operations
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.mlir import Module, Operation, ir
from pathways.dialect.sdy import read_sharding, read_shardings
from pathways.dialect.sharding import Axes, Dims, replicated, size_of_axes

MAX_OPERATIONS = 512
MAX_FLOPS = 1e7
"""Maximum on one device. In a larger computation, the cost of its start is negligible."""

_TOGETHER = frozenset(
    {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "cross-replica-sum",
        "custom_call",
        "infeed",
        "outfeed",
        "partition_id",
        "recv",
        "reduce_scatter",
        "replica_id",
        "rng",
        "send",
    }
)
"""StableHLO operations that one device cannot do alone, or whose meaning is unknown."""


class _NotLocal(Exception):
    """An operation needs more than the local shards."""


@dataclass(frozen=True)
class _Shard:
    """A value on one device: its shard, and the sharding of the whole."""

    value: Any
    dims: Dims


@dataclass(frozen=True)
class _Spread:
    """A value broadcast to new dimensions, which its users may split in any way.

    `places` maps dimensions of the source to dimensions of the result. `fixed` gives, for a dimension of the result,
    the source dimension that decides its split.
    """

    source: _Shard
    shape: tuple[int, ...]
    places: tuple[int, ...]
    fixed: tuple[int | None, ...]


_Known: TypeAlias = _Shard | _Spread


def localize(
    computation: Operation,
    axes: Axes,
    ins: Sequence[Dims],
    outs: Sequence[Dims],
    operations: int = MAX_OPERATIONS,
    flops: float = MAX_FLOPS,
) -> Module | None:
    """Returns the module for one device, or None. Needs the context of the computation.

    `ins` and `outs` are the shardings of arguments and results of @main. Also returns None if the computation has more
    than `operations` operations, or more than `flops` on one device.
    """
    size = size_of_axes(axes)
    if size == 1 or read_callbacks(computation) or count_operations(computation) > operations:
        return None
    if flops_of(computation) > flops * size:
        return None
    whole = inlined(computation)
    try:
        local = _Localizer(dict(axes)).run(main_of(whole.operation), ins, outs)
        return local if local.operation.verify() else None
    except (_NotLocal, ir.MLIRError):
        return None


class _Localizer:
    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.known: dict[Any, _Known] = {}
        self.rules: dict[str, Callable[[Operation], None]] = {
            "stablehlo.broadcast_in_dim": self._broadcast,
            "stablehlo.transpose": self._transpose,
            "stablehlo.dot_general": self._dot,
            "stablehlo.reduce": self._reduce,
            "stablehlo.reshape": self._reshape,
            "sdy.sharding_constraint": self._constraint,
            "sdy.manual_computation": self._manual,
        }

    def run(self, main: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> Module:
        with ir.Location.unknown():
            module = ir.Module.create()
            i32 = ir.IntegerType.get_signless(32)
            for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
                module.operation.attributes[name] = ir.IntegerAttr.get(i32, 1)
            types = [self._local(t, d) for t, d in zip(main.type.inputs, ins, strict=True)]
            results = [self._local(t, d) for t, d in zip(main.type.results, outs, strict=True)]
            made = main.operation.clone(ir.InsertionPoint(module.body)).operation
            block = made.regions[0].blocks[0]
            made.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
            for key, count in (("arg_attrs", len(types)), ("res_attrs", len(results))):
                made.attributes[key] = ir.ArrayAttr.get([_unsharded(a) for a in described(main, key, count)])
            for argument, type_, dims in zip(block.arguments, types, ins, strict=True):
                argument.set_type(type_)
                self.known[argument] = _Shard(argument, dims)
            *operations, end = [op.operation for op in block.operations]
            for op in operations:
                self._operation(op)
            with ir.InsertionPoint(end):
                for i, (value, dims) in enumerate(zip(list(end.operands), outs, strict=True)):
                    end.operands[i] = self._as(value, dims, end)
            for op in reversed(operations):
                if op.name in self.rules or op.name.startswith("stablehlo."):
                    _erase_unused(op)
        return module

    def _local(self, type_: Any, dims: Dims) -> Any:
        shape = list(type_.shape)
        for at, names in enumerate(dims):
            for name in names:
                if name not in self.sizes or shape[at] % self.sizes[name]:
                    raise _NotLocal
                shape[at] //= self.sizes[name]
        return ir.RankedTensorType.get(shape, type_.element_type)

    def _operation(self, op: Operation) -> None:
        if op.name in self.rules:
            self.rules[op.name](op)
        elif op.name in ELEMENTWISE:
            self._elementwise(op)
        else:
            _check_local(op)
            self._check_captured(op)
            for i, value in enumerate(list(op.operands)):
                op.operands[i] = self._as(value, replicated(value.type.rank), op)
            self._set(op, [replicated(r.type.rank) for r in op.results])

    def _check_captured(self, op: Operation) -> None:
        """Checks that values that regions capture are whole and unchanged. Raises _NotLocal otherwise."""
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    for value in inner.operation.operands:
                        known = self.known.get(value)
                        if known is not None and known != _Shard(value, replicated(value.type.rank)):
                            raise _NotLocal
                    self._check_captured(inner.operation)

    def _set(self, op: Operation, dims: Sequence[Dims]) -> None:
        """Changes the results of an operation into shards."""
        for result, one in zip(op.results, dims, strict=True):
            result.set_type(self._local(result.type, one))
            self.known[result] = _Shard(result, one)

    def _remake(self, op: Operation, operands: Sequence[Any], dims: Dims) -> None:
        """Copies an operation onto shards. The whole operation is erased at the end."""
        made = op.clone(ir.InsertionPoint(op)).operation
        for i, value in enumerate(operands):
            made.operands[i] = value
        for old, new in zip(op.results, made.results, strict=True):
            new.set_type(self._local(old.type, dims))
            self.known[old] = _Shard(new, dims)

    def _as(self, value: Any, dims: Dims, before: Operation) -> Any:
        """Returns a value with this split, and builds it if it is a broadcast. Raises _NotLocal for another split."""
        known = self.known[value]
        if isinstance(known, _Shard):
            if known.dims != dims:
                raise _NotLocal
            return known.value
        for at, source in enumerate(known.fixed):
            if source is not None and known.source.dims[source] != dims[at]:
                raise _NotLocal
        element = known.source.value.type.element_type
        type_ = self._local(ir.RankedTensorType.get(list(known.shape), element), dims)
        made = ir.Operation.create(
            "stablehlo.broadcast_in_dim",
            results=[type_],
            operands=[known.source.value],
            attributes={"broadcast_dimensions": ir.DenseI64ArrayAttr.get(list(known.places))},
            ip=ir.InsertionPoint(before),
            loc=before.location,
        )
        return made.results[0]

    def _shard(self, value: Any, op: Operation) -> _Shard:
        """Returns a value as a shard. The new dimensions of a broadcast value are not split."""
        known = self.known[value]
        if isinstance(known, _Shard):
            return known
        dims = tuple(() if s is None else known.source.dims[s] for s in known.fixed)
        return _Shard(self._as(value, dims, op), dims)

    def _elementwise(self, op: Operation) -> None:
        rank = op.results[0].type.rank
        wide = [v for v in op.operands if v.type.rank == rank]
        fixed: list[Dims] = [k.dims for v in wide if isinstance(k := self.known[v], _Shard)]
        if not fixed and all(isinstance(k := self.known[v], _Spread) and not k.places for v in wide):
            self._of_scalars(op)
            return
        dims = fixed[0] if fixed else self._shard(wide[0], op).dims
        for i, value in enumerate(list(op.operands)):  # a scalar condition, the bounds of a clamp
            op.operands[i] = self._as(value, dims if value.type.rank == rank else (), op)
        self._set(op, [dims] * len(op.results))

    def _of_scalars(self, op: Operation) -> None:
        """Computes an operation on broadcast scalars once, on the scalars. Its result is a broadcast value."""
        made = op.clone(ir.InsertionPoint(op)).operation
        for i, value in enumerate(op.operands):
            known = self.known[value]
            made.operands[i] = known.source.value if isinstance(known, _Spread) else self._as(value, (), op)
        for old, new in zip(op.results, made.results, strict=True):
            shape = tuple(old.type.shape)
            new.set_type(ir.RankedTensorType.get([], old.type.element_type))
            self.known[old] = _Spread(_Shard(new, ()), shape, (), (None,) * len(shape))

    def _broadcast(self, op: Operation) -> None:
        source = self._shard(op.operands[0], op)
        places = tuple(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        whole = _whole_shape(source, self.sizes)
        shape = tuple(op.results[0].type.shape)
        fixed: list[int | None] = [None] * len(shape)
        for at, target in enumerate(places):
            if whole[at] == shape[target]:
                fixed[target] = at
        self.known[op.results[0]] = _Spread(source, shape, places, tuple(fixed))

    def _transpose(self, op: Operation) -> None:
        source = self._shard(op.operands[0], op)
        order: list[int] = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        self._remake(op, [source.value], tuple(source.dims[i] for i in order))

    def _reshape(self, op: Operation) -> None:
        source = self._shard(op.operands[0], op)
        whole = _whole_shape(source, self.sizes)
        old = [(n, d) for n, d in zip(whole, source.dims, strict=True) if n != 1]
        new = list(op.results[0].type.shape)
        if any(source.dims) and [n for n, _ in old] != [n for n in new if n != 1]:
            raise _NotLocal
        left = iter(d for _, d in old)
        dims = tuple(next(left) if n != 1 else () for n in new) if any(source.dims) else replicated(len(new))
        self._remake(op, [source.value], dims)

    def _dot(self, op: Operation) -> None:
        left, right = (self._shard(v, op) for v in op.operands)
        text = str(op.attributes["dot_dimension_numbers"])
        batch = _numbers(text, "lhs_batching_dimensions"), _numbers(text, "rhs_batching_dimensions")
        inner = _numbers(text, "lhs_contracting_dimensions"), _numbers(text, "rhs_contracting_dimensions")
        if any(left.dims[i] for i in inner[0]) or any(right.dims[i] for i in inner[1]):
            raise _NotLocal
        shared = [left.dims[i] for i in batch[0]]
        if shared != [right.dims[i] for i in batch[1]]:
            raise _NotLocal
        free: list[list[tuple[str, ...]]] = [
            [d for i, d in enumerate(side.dims) if i not in (*b, *c)]
            for side, b, c in zip((left, right), batch, inner, strict=True)
        ]
        dims = tuple([*shared, *free[0], *free[1]])
        used = [name for names in dims for name in names]
        if len(set(used)) != len(used):
            raise _NotLocal
        self._remake(op, [left.value, right.value], dims)

    def _reduce(self, op: Operation) -> None:
        self._check_captured(op)
        removed: list[int] = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        count = len(op.operands) // 2
        sources = [self._shard(v, op) for v in list(op.operands)[:count]]
        if any(s.dims[i] for s in sources for i in removed) or len({s.dims for s in sources}) > 1:
            raise _NotLocal
        dims = tuple(d for i, d in enumerate(sources[0].dims) if i not in removed)
        starts = [self._as(v, (), op) for v in list(op.operands)[count:]]
        self._remake(op, [*(s.value for s in sources), *starts], dims)

    def _constraint(self, op: Operation) -> None:
        wanted = read_sharding(op.attributes["sharding"]).dims
        value = self._as(op.operands[0], wanted, op)
        self.known[op.results[0]] = _Shard(value, wanted)

    def _manual(self, op: Operation) -> None:
        """Inlines a manual computation, which the user has written for one device."""
        ins = [p.dims for p in read_shardings(op.attributes["in_shardings"])]
        outs = [p.dims for p in read_shardings(op.attributes["out_shardings"])]
        block = op.regions[0].blocks[0]
        inside: dict[Any, Any] = {}
        for argument, value, dims in zip(block.arguments, list(op.operands), ins, strict=True):
            inside[argument] = self._as(value, dims, op)
            if inside[argument].type != argument.type:  # some axis is not manual
                raise _NotLocal
        *body, end = [inner.operation for inner in block.operations]
        for inner in body:
            _check_local(inner)
            copy_into(inner, ir.InsertionPoint(op), inside)
        for result, value, dims in zip(op.results, end.operands, outs, strict=True):
            self.known[result] = _Shard(inside[value], dims)


def _erase_unused(op: Operation) -> None:
    """Erases a replaced operation: the whole form of a value that is now a shard."""
    if not any(list(r.uses) for r in op.results):
        op.erase()


def _whole_shape(shard: _Shard, sizes: dict[str, int]) -> list[int]:
    """Returns the shape of the whole value."""
    shape = list(shard.value.type.shape)
    for at, names in enumerate(shard.dims):
        for name in names:
            shape[at] *= sizes[name]
    return shape


def _check_local(op: Operation) -> None:
    """Raises _NotLocal for an operation that one device cannot do alone, at any depth."""
    dialect, _, kind = op.name.partition(".")
    if kind in _TOGETHER or dialect in ("sdy", "func", "mhlo"):
        raise _NotLocal
    if not all(isinstance(v.type, ir.RankedTensorType) for v in (*op.operands, *op.results)):  # tokens and tuples
        raise _NotLocal
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _check_local(inner.operation)


def _numbers(text: str, name: str) -> list[int]:
    """Reads a list of dimensions from a printed attribute; the Python bindings have no other access."""
    _, found, rest = text.partition(f"{name} = [")
    return [int(n) for n in rest.partition("]")[0].split(",") if n.strip()] if found else []


def _unsharded(attribute: Any) -> Any:
    return ir.DictAttr.get({named.name: named.attr for named in attribute if named.name != "sdy.sharding"})
