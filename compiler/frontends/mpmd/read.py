"""Imports a program of Shardy's MPMD dialect as the compiler's first IR (phase `trace`). Each MPMD mesh becomes a slice
of virtual devices, and each fragment becomes a call. The driver and `pw.from_mpmd` call it.

After Shardy's phase PARTITION (`mpmd.fragment_call`), every sharding and the order of the calls are decided; the order
is kept. After IMPORT or OPTIMIZE (`mpmd.fragment` with regions), only the user's shardings are known. This compiler
then does propagation and scheduling; the fragments state stages and microbatches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pathways.compiler.frontends.builder import Built, FunctionBuilder, ProgramBuilder, SliceSpec, symbol_of
from pathways.compiler.frontends.mpmd.actions import STAGE, Actions, uncounted
from pathways.compiler.frontends.mpmd.errors import MpmdUnsupported, NotMpmd, WrongMpmdPhase
from pathways.compiler.frontends.mpmd.fragments import (
    Computations,
    call_signature,
    closed_dims,
    strip_locations,
)
from pathways.compiler.frontends.mpmd.named import described_by
from pathways.compiler.frontends.mpmd.source import Described, MpmdSource
from pathways.compiler.frontends.mpmd.types import (
    SHARDING,
    MeshTensor,
    read_mesh_tensor,
    read_meshes,
    split_as_stated,
    stated_dims,
)
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.functions import described, functions_of
from pathways.dialect.mlir import Context, Module, Value, ir, make_context, parse, where_of
from pathways.dialect.plan.signature import POSITION, Parameter
from pathways.dialect.rewrite_locations import parse_named
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Axes, Dims, MeshSpec, size_of_axes
from pathways.dialect.shardy_mpmd import register
from pathways.dialect.trees import describe_tree

FRAGMENT, CALL, TRANSFER = "mpmd.fragment", "mpmd.fragment_call", "mpmd.transfer"
_DONATED = ("jax.buffer_donor", "tf.aliasing_output")


@dataclass(frozen=True)
class ImportedProgram:
    """An imported program, the description of its arguments and results, and notes for the user on how it runs here."""

    built: Built
    known: Described
    notes: tuple[str, ...]


def read_mpmd(source: MpmdSource, platform: str) -> ImportedProgram:
    """Imports a program. Raises PWC0702 if it is not MLIR, PWC0120-PWC0122, PWC0125, and PWC0701 with lines."""
    context = make_context()
    register(context)
    module = parsed(source, context)
    with context, ir.Location.unknown():
        reader = _Reader(source, module, platform)
        built = reader.read()
        return ImportedProgram(built, reader.known, tuple(reader.notes))


def is_mpmd(text: str) -> bool:
    """Whether text is a program of Shardy's MPMD dialect, and not a dump of this compiler."""
    return "#mpmd.topology<" in text and "pw.phase" not in text


def parsed(source: MpmdSource, context: Context) -> Module:
    if isinstance(source.module, bytes):
        return parse(source.module, context, source.name)
    return parse_named(source.module, source.name, context)


class _Reader:
    """Imports one program; its context must be entered."""

    def __init__(self, source: MpmdSource, module: Module, platform: str) -> None:
        self.main = _main_of(module, source.name)
        _check_straight(self.main, source.name)
        self.meshes = read_meshes(self.main.operation.attributes["topology"], source.name)
        self.block = self.main.regions[0].blocks[0]
        self.known: Described = source.described or described_by(self.main)
        self.bare: Any = module.operation.clone().opview
        strip_locations(self.bare)
        self.computations = Computations(module, self.bare, source.callbacks)
        stated = any(STAGE in op.operation.attributes for op in self.block.operations)
        stages = None if stated else {mesh: i for i, mesh in enumerate(self.meshes)}
        labels = list(_labels(self.block, Actions(stages)))
        problem = uncounted((action, mesh) for _, action, mesh in labels if action is not None)
        self.labels = iter([(name, action if problem is None else None) for name, action, _ in labels])
        """The name and the action of each fragment, in program order."""
        self.decided = is_partitioned(self.main)
        self.builder = ProgramBuilder(program_name(source.name), platform, where=where_of(self.main.operation))
        self.slices = {m: SliceSpec(i, size_of_axes(axes)) for i, (m, axes) in enumerate(self.meshes.items())}
        self.symbols = {m: self._mesh(m, axes) for m, axes in self.meshes.items()}
        self.of: dict[Any, MeshTensor] = {}
        """The types of values, completed by the function's attributes."""
        self.env: dict[Any, Value] = {}
        self.notes = [] if problem is None else [f"stages and microbatches of its fragments are ignored: {problem}"]

    def _mesh(self, mesh: str, axes: Axes) -> str:
        """Returns the symbol of a mesh of the topology, or of the same devices under other axes."""
        return self.builder.mesh(self.slices[mesh], MeshSpec(axes, tuple(range(size_of_axes(axes)))))

    def read(self) -> Built:
        arguments = self._arguments()
        body = self.builder.main(arguments)
        for position, value in zip(self.known.kept, self.block.arguments, strict=True):
            self.env[value] = body.arguments[position]
        *operations, end = self.block.operations
        bare = _main_of(self.bare, "").regions[0].blocks[0].operations
        for op, twin in zip(operations, list(bare)[:-1], strict=True):
            self._operation(body, op, twin)
        body.returns(self._returned(body, list(end.operands)), self.known.results)
        in_tree, out_tree = describe_tree(self.known.in_tree), describe_tree(self.known.out_tree)
        positions = tuple(Parameter(f"arg{i}", POSITION) for i in range(len(in_tree.children)))
        return self.builder.finish(in_tree, out_tree, positions, ordered=self.decided)

    def _arguments(self) -> list[tuple[Argument, ArrayType]]:
        """Returns all arguments of the traced function. An unused argument has no mesh."""
        known = self.known
        arguments = list(known.inputs)
        attributes = described(self.main, "arg_attrs", len(self.block.arguments))
        for position, value, given in zip(known.kept, self.block.arguments, attributes, strict=True):
            stated = stated_dims(given[SHARDING]) if SHARDING in given else None
            type_ = self.of[value] = read_mesh_tensor(value.type).split(stated)
            self._check_mesh(type_, self.main)
            if any(True for _ in value.uses):
                mesh, dims = self.symbols[type_.mesh], self._dims(type_)
                placed = None if dims is None else Placed(mesh, dims)
                donate = any(key in given for key in _DONATED)
                argument = replace(arguments[position][0], mesh=mesh, sharding=placed, donate=donate)
                arguments[position] = argument, type_.type
        return arguments

    def _returned(self, body: FunctionBuilder, values: list[Any]) -> list[Value]:
        """Returns the results. Before PARTITION, moves them to the shardings that the function states."""
        attributes = described(self.main, "res_attrs", len(values))
        returned: list[Value] = []
        for value, given in zip(values, attributes, strict=True):
            made = self._type(value, self.main)
            where = where_of(self.main.operation)
            dims = stated_dims(given[SHARDING], where) if SHARDING in given and not self.decided else None
            if dims is not None:
                returned.append(body.transfer(self.env[value], self.symbols[made.mesh], dims, where=where))
            else:
                returned.append(self.env[value])
        return returned

    def _type(self, value: Any, op: Any) -> MeshTensor:
        if value not in self.of:
            self.of[value] = read_mesh_tensor(value.type)
            self._check_mesh(self.of[value], op)
        return self.of[value]

    def _dims(self, type_: MeshTensor) -> Dims | None:
        """Returns how a value is split. Without a stated sharding it is replicated after PARTITION, and open before."""
        return closed_dims(type_) if self.decided else type_.dims

    def _check_mesh(self, type_: MeshTensor, op: Any) -> None:
        where = where_of(op.operation)
        note = f"values of memory kind {type_.memory} stay in device memory"
        if not type_.on_device and note not in self.notes:
            self.notes.append(note)
        if type_.mesh not in self.meshes:
            have, rule = f"a value on {type_.mesh}", f"one of {', '.join(self.meshes)}"
            what, advice = "a mesh that is not in the topology", "lower the program again"
            raise PathwaysError(MpmdUnsupported(what=what, have_=have, rule=rule, advice=advice, where=where))

    def _operation(self, body: FunctionBuilder, op: Any, bare: Any) -> None:
        kind = op.operation.name
        if kind == TRANSFER:
            self._transfer(body, op)
        elif kind in (FRAGMENT, CALL):
            self._call(body, op, bare)
        else:
            raise _left_over(op)

    def _transfer(self, body: FunctionBuilder, op: Any) -> None:
        """Adds a move to a mesh. Shardy uses host memory as a waiting place; here a value waits on its devices."""
        (operand,), (result,) = op.operation.operands, op.operation.results
        where = where_of(op.operation)
        (target,) = split_as_stated(op.operation.attributes, (SHARDING,), [self._type(result, op)], where)
        source, self.of[result] = self._type(operand, op), target
        dims = self._dims(target)
        if source.mesh == target.mesh and (dims is None or dims == self._dims(source)):
            self.env[result], self.of[result] = self.env[operand], target.split(source.dims)
            return
        self.env[result] = body.transfer(self.env[operand], self.symbols[target.mesh], dims, where=where)

    def _call(self, body: FunctionBuilder, op: Any, bare: Any) -> None:
        attributes, where = op.operation.attributes, where_of(op.operation)
        mesh, (name, action) = attributes["mesh_name"].value, next(self.labels)
        ins = split_as_stated(attributes, ("in_shardings",), [self._type(v, op) for v in op.operation.operands], where)
        made = [self._type(v, op) for v in op.operation.results]
        outs = split_as_stated(attributes, ("out_shardings", SHARDING), made, where)
        signature = call_signature(self.meshes[mesh], ins, outs, self.decided)
        if op.operation.name == CALL:
            callee = attributes["callee"].value
            signature = self.computations.stated(callee, signature)
            computation = self.computations.of_callee(callee, name, signature)
        else:
            computation = self.computations.of_region(op, bare, name, signature)
        operands = [self.env[v] for v in op.operation.operands]
        results = body.call(
            computation, operands, self._mesh(mesh, signature.axes), name=name, action=action, where=where
        )
        self.env.update(zip(op.operation.results, results, strict=True))


def program_name(name: str) -> str:
    """Returns the name of a program; for a file x.mpmd.mlir it is x."""
    return symbol_of(PurePath(name).name.partition(".")[0])


def is_partitioned(main: Any) -> bool:
    """Whether Shardy's PARTITION has run. A program of transfers alone has no calls, but its types have shardings."""
    block = main.regions[0].blocks[0]
    kinds = {op.operation.name for op in block.operations}
    return CALL in kinds or (FRAGMENT not in kinds and any("sharding=" in str(a.type) for a in block.arguments))


def _labels(block: Any, actions: Actions) -> Iterator[tuple[str, str | None, str]]:
    """Yields the name of each fragment, its stated action, and its mesh."""
    for op in block.operations:
        kind, attributes = op.operation.name, op.operation.attributes
        if kind == CALL:
            yield *actions.of_call(attributes["callee"].value, attributes), attributes["mesh_name"].value
        elif kind == FRAGMENT:
            mesh = attributes["mesh_name"].value
            yield *actions.of_fragment(attributes, mesh), mesh


def _check_straight(main: Any, name: str) -> None:
    """Raises PWC0120 if the function has no body, PWC0121 if it has branches."""
    blocks = list(main.regions[0].blocks)
    if not blocks:
        advice = "pass the module that contains its body"
        raise PathwaysError(NotMpmd(name=name, have_="a function with a topology, but without a body", advice=advice))
    *_, end = blocks[0].operations
    if len(blocks) > 1 or end.operation.name != "func.return":
        raise _left_over(end)


def _left_over(op: Any) -> PathwaysError:
    kind, rule = op.operation.name, "fragments and transfers, as after Shardy's phase IMPORT"
    advice, problem = "mpmd.jit(f, config).lower(...) runs all phases of Shardy", f"the program still contains {kind}"
    where = where_of(op.operation)
    return PathwaysError(WrongMpmdPhase(problem=problem, have_=kind, rule=rule, advice=advice, where=where))


def _main_of(module: Module, name: str) -> Any:
    """Returns the only function with a topology. Raises PWC0120 if there is none, or more than one."""
    found = [f for f in functions_of(module.operation).values() if "topology" in f.attributes]
    if len(found) != 1:
        have = f"{len(found) or 'no'} functions with a topology"
        advice = "pass the module of one program, after Shardy's phase IMPORT"
        raise PathwaysError(NotMpmd(name=name, have_=have, advice=advice))
    return found[0].opview
