"""Makes small mistakes in the code of this project, one at a time, in a process that has imported it.

A mutant changes one operator, constant, condition, call or result within a function. Texts, errors, assertions and
annotations are left alone.
"""

import ast
import collections
import gc
import importlib.machinery
import os
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
_LEFT_ALONE = ("annotation", "returns", "decorator_list", "type_comment", "args")
_NOT_MUTATED = ("__repr__", "__str__", "__hash__", "__del__")


@dataclass(frozen=True)
class Mutant:
    """One mistake: the number of a change within a file, and its description."""

    file: str
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} (line {self.line}: {self.what})"


@dataclass
class _Change:
    """One possible change: the node of the tree, and the function that makes the change."""

    node: ast.AST
    what: str
    apply: Callable[[], None]


def _changes(tree: ast.Module) -> Iterator[_Change]:
    """Finds all changes within functions, in the order of the source. Texts, errors and annotations are left alone."""
    for function in _outermost(tree):
        if function.name not in _NOT_MUTATED:
            for statement in function.body:
                yield from _of(statement, function.body)


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
            yield from _outermost(node)


def _of(node: ast.AST, siblings: list[ast.stmt]) -> Iterator[_Change]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # `strict` of zip is an assertion
        return
    yield from _of_this(node, siblings)
    for name, value in ast.iter_fields(node):
        if name in _LEFT_ALONE and not isinstance(node, ast.Call):
            continue
        children: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        for child in children:
            if isinstance(child, ast.AST):
                yield from _of(child, children if isinstance(child, ast.stmt) else siblings)


def _of_this(node: ast.AST, siblings: list[ast.stmt]) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if (other := _SWAPS.get(type(op))) is not None:
                    yield _Change(node, f"{type(op).__name__} -> {other.__name__}", _setter(ops, at, other()))
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            is_text = isinstance(node, ast.BinOp) and _is_text(node.left, node.right)
            if (other := _SWAPS.get(type(op))) is not None and not is_text:
                yield _Change(node, f"{type(op).__name__} -> {other.__name__}", _attribute(node, "op", other()))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change(node, "not x -> x", _attribute(node, "operand", ast.UnaryOp(ast.Not(), operand)))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield _Change(node, "condition negated", _attribute(node, "test", ast.UnaryOp(ast.Not(), test)))
        case ast.Constant(value=bool(value)):
            yield _Change(node, f"{value} -> {not value}", _attribute(node, "value", not value))
        case ast.Constant(value=int(value) | float(value)):
            yield _Change(node, f"{value} -> {value + 1}", _attribute(node, "value", value + 1))
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTIONS:
            yield _Change(
                node, f"{name} -> {_OTHER_FUNCTIONS[name]}", _attribute(node.func, "id", _OTHER_FUNCTIONS[name])
            )
        case ast.Expr(value=ast.Call()):
            at = siblings.index(node)
            yield _Change(node, "call left out", _setter(siblings, at, ast.Pass()))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _Change(node, "returns None", _attribute(node, "value", ast.Constant(None)))
        case ast.Break():
            yield _Change(node, "break -> continue", _setter(siblings, siblings.index(node), ast.Continue()))
        case ast.Continue():
            yield _Change(node, "continue -> break", _setter(siblings, siblings.index(node), ast.Break()))
        case _:
            return


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(o, ast.JoinedStr) or (isinstance(o, ast.Constant) and isinstance(o.value, str)) for o in operands
    )


def _setter(items: list[Any], at: int, value: Any) -> Callable[[], None]:
    def apply() -> None:
        items[at] = ast.copy_location(value, items[at]) if hasattr(items[at], "lineno") else value

    return apply


def _attribute(node: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def mutants_of(file: str) -> list[Mutant]:
    """Returns all mutants of a file."""
    found = enumerate(_changes(_parsed(file)))
    return [Mutant(file, number, getattr(change.node, "lineno", 0), change.what) for number, change in found]


def mutated_code(mutant: Mutant) -> types.CodeType:
    """Compiles the file of a mutant with its change."""
    tree = _parsed(mutant.file)
    change = next(c for n, c in enumerate(_changes(tree)) if n == mutant.number)
    change.apply()
    return compile(ast.fix_missing_locations(tree), str(ROOT / mutant.file), "exec")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


@dataclass
class Functions:
    """The loaded functions of this project, by file, qualified name and first line."""

    by_place: dict[tuple[str, str, int], list[types.FunctionType]] = field(default_factory=dict[Any, Any])

    @classmethod
    def loaded(cls) -> "Functions":
        found: dict[tuple[str, str, int], list[types.FunctionType]] = collections.defaultdict(list)
        gc.unfreeze()  # the tests freeze objects, and frozen objects are not listed
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                code = one.__code__
                if "/pathways/" in code.co_filename or str(ROOT) in code.co_filename:
                    found[os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno].append(one)
        return cls(dict(found))

    def become(self, mutant: Mutant) -> int:
        """Replaces the code of the functions of a file by that of a mutant; returns the number of changed functions."""
        changed = 0
        for code in _codes(mutated_code(mutant)):
            for function in self.by_place.get((str(ROOT / mutant.file), code.co_qualname, code.co_firstlineno), ()):
                same = _says(function.__code__) == _says(code)
                if not same and function.__code__.co_freevars == code.co_freevars:
                    function.__code__ = code.replace(co_filename=function.__code__.co_filename)
                    changed += 1
        _imported_as(mutant)
        return changed


def _says(code: types.CodeType) -> tuple[Any, ...]:
    """Returns the parts of a code object that decide its behavior: its instructions, constants and names."""
    return code.co_code, code.co_consts, code.co_names


def _imported_as(mutant: Mutant) -> None:
    """Applies the change also to modules that are imported later, or run as the main module."""
    unchanged = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        same = os.path.realpath(self.path) == str(ROOT / mutant.file)
        return mutated_code(mutant) if same else unchanged(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code
