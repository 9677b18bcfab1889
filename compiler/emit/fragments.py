"""Writes each computation of a program as MLIR functions in the emitted MPMD module, which `mpmd.fragment_call` runs.
`mpmd_text.py` calls it.

A function is a computation's @main; its helpers become functions, too. All functions of a module share its symbols.
Meshes with the same axes share one symbol, since two equal meshes under two names do not compile.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.compiler.emit.donation import Donated
from pathways.compiler.emit.meshes import NamedMesh
from pathways.compiler.emit.spelling import axes_text, quoted, sharding_text, symbol
from pathways.dialect.call_labels import Action
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.functions import described, functions_of
from pathways.dialect.mlir import Operation, bytecode, ir, parse
from pathways.dialect.sdy import mesh_ops_of
from pathways.dialect.sharding import Axes, Dims
from pathways.dialect.symbols import free_symbol

_KINDS = {"F": "fwd", "B": "bwd", "I": "bwd_input", "W": "bwd_weights"}


@dataclass
class Symbols:
    """The symbols of a module, each unique. Equal axes always have the same symbol."""

    taken: set[str] = field(default_factory=lambda: {"main"})
    meshes: dict[str, str] = field(default_factory=dict[str, str])
    """Symbols of meshes, by the text of the mesh."""

    def new(self, name: str) -> str:
        """Reserves this symbol, or a similar one if it is taken."""
        found = free_symbol(name, self.taken.__contains__)
        self.taken.add(found)
        return found

    def mesh(self, text: str) -> str:
        """Returns the symbol of a mesh, which is declared at the top of the module."""
        if text not in self.meshes:
            self.meshes[text] = self.new("mesh")
        return self.meshes[text]

    def axes(self, axes: Axes) -> str:
        return self.mesh(axes_text(axes))


def fragment_name(number: int, callee: str, actions: Sequence[Action | None], program: str) -> str:
    """Names a function as Shardy does: `p3_stage1_fwd_calls0to2.step`. Without one stage, uses `callee`."""
    known = [a for a in actions if a is not None]
    what = callee
    if len(known) == len(actions) and len({(a.stage, a.kind) for a in known}) == 1:
        first, last = min(a.microbatch for a in known), max(a.microbatch for a in known)
        calls = f"call{first}" if first == last else f"calls{first}to{last}"
        what = f"stage{known[0].stage}_{_KINDS[known[0].kind]}_{calls}"
    return f"p{number}_{what}.{program}"


def function_texts(
    computation: Operation, name: str, home: NamedMesh, donated: Sequence[Donated], symbols: Symbols
) -> Iterator[str]:
    """Writes the functions of a computation: @main as `name`, then its helpers."""
    module = parse(bytecode(computation), computation.context)
    with computation.context:
        _rename_meshes(module.operation, symbols)
        functions = functions_of(module.operation)
        new = {old: name if old == "main" else symbols.new(f"{name}.{old}") for old in functions}
        _rename(module.operation, functions, new)
        main = functions.pop("main")
        _describe(main, donated)
        main.attributes["mesh_shape"] = ir.Attribute.parse(f"#sdy.mesh{axes_text(home.axes)}")
        if "sym_visibility" in main.attributes:
            del main.attributes["sym_visibility"]
        for function in functions.values():
            function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        for function in (main, *functions.values()):
            yield function.get_asm(enable_debug_info=True, use_local_scope=True)


def constant_text(type_: ArrayType, raw: bytes, name: str, home: NamedMesh, mesh: str, dims: Dims) -> str:
    """Writes a function that returns a constant with these bytes."""
    made = f"{type_.mlir} {{sdy.sharding = #sdy.sharding{sharding_text(mesh, dims)}}}"
    return (
        f"func.func {symbol(name)}() -> ({made}) attributes {{mesh_shape = #sdy.mesh{axes_text(home.axes)}}} {{\n"
        f"  %0 = stablehlo.constant dense<{_elements(type_, raw)}> : {type_.mlir} loc(unknown)\n"
        f"  return %0 : {type_.mlir} loc(unknown)\n"
        "} loc(unknown)"
    )


def _elements(type_: ArrayType, raw: bytes) -> str:
    """Writes the elements as bytes. Booleans are written one by one, since MLIR packs their bits."""
    if type_.dtype != "bool":
        return quoted(f"0x{raw.hex().upper()}") if raw else ""

    def written(shape: tuple[int, ...], at: bytes) -> str:
        if not shape:
            return "true" if at[0] else "false"
        step = len(at) // shape[0] if shape[0] else 0
        return f"[{', '.join(written(shape[1:], at[i * step : (i + 1) * step]) for i in range(shape[0]))}]"

    return written(type_.shape, raw) if raw else ""


def _describe(main: Operation, donated: Sequence[Donated]) -> None:
    """Keeps only the shardings among the attributes of arguments and results, and adds the donations."""
    given = {d.operand: d for d in donated}
    count = {"arg_attrs": len(main.regions[0].blocks[0].arguments), "res_attrs": len(_type(main).results)}
    for key, length in count.items():
        call_attributes: list[Any] = []
        for number, known in enumerate(described(main, key, length)):
            left = {k: known[k] for k in ("sdy.sharding",) if k in known}
            if key == "arg_attrs" and number in given:
                left |= _donation(given[number])
            call_attributes.append(ir.DictAttr.get(left))
        main.attributes[key] = ir.ArrayAttr.get(call_attributes)


def _donation(donated: Donated) -> dict[str, Any]:
    if donated.result is None:
        return {"jax.buffer_donor": ir.BoolAttr.get(True)}
    return {"tf.aliasing_output": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), donated.result)}


def _type(main: Operation) -> Any:
    return main.attributes["function_type"].value


def _rename_meshes(module: Operation, symbols: Symbols) -> None:
    """Gives the meshes of a computation the symbols of their axes in the module."""
    meshes = mesh_ops_of(module)
    _rename(module, meshes, {old: symbols.mesh(_mesh_text(op)) for old, op in meshes.items()})
    for op in meshes.values():
        op.erase()


def _mesh_text(op: Operation) -> str:
    return re.sub(r"^#sdy\.mesh", "", str(op.attributes["mesh"]))


def _rename(module: Operation, ops: dict[str, Operation], new: dict[str, str]) -> None:
    """Renames symbols all at once, through temporary names that no module has."""
    steps: tuple[Callable[[str], str], ...] = (lambda old: f"pw.renamed.{old}", lambda old: new[old])
    before = {old: old for old in ops}
    for step in steps:
        for old, op in ops.items():
            after = step(old)
            ir.SymbolTable.replace_all_symbol_uses(before[old], after, module)
            op.attributes["sym_name"] = ir.StringAttr.get(after)
            before[old] = after
