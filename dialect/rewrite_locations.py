"""Rewrites the source locations in an MLIR module, so that plans do not contain paths of this machine. It renames
files, and drops stack lines of libraries. The front ends call it after lowering.

The new names come from `sources.py`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pathways.dialect.mlir import Module, Operation, ir, parse_text

UNNAMED = "-"
"""The file name that MLIR gives to text that was not read from a file."""

_Line = tuple[str, Any]
"""A function's name, empty if none is stated, and the location of its line."""


def rewrite_locations(operation: Operation, stored: Callable[[str], str | None]) -> None:
    """Renames the files of an op and of all ops in it to `stored(file)`; drops lines of files if that is None."""
    known: dict[Any, Any] = {}

    def short(location: Any) -> Any:
        key = location.attr
        if key not in known:
            known[key] = _short(location, stored)
        return known[key]

    def visit(op: Operation) -> Any:
        op.location = short(op.location)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(short(argument.location))
        return ir.WalkResult.ADVANCE

    with operation.context:
        operation.walk(visit)


def parse_named(source: str, name: str, context: Any = None) -> Module:
    """Parses untrusted text like `parse_text`. Ops without a location get their line in the file `name`."""
    module = parse_text(source, name, context)
    if "loc(" not in source:
        rewrite_locations(module.operation, lambda file: name if file == UNNAMED else file)
    return module


def _short(location: Any, stored: Callable[[str], str | None]) -> Any:
    """Builds the new location of an op: its names, and the stack lines that are kept."""
    names: list[str] = []
    while isinstance(location, ir.NameLoc) and not (names and isinstance(location.child_loc, ir.FileLineColLoc)):
        names.append(location.name_str)
        location = location.child_loc
    lines = [made for line in _lines(location) if (made := _renamed(line, stored)) is not None]
    made = ir.Location.unknown() if not lines else lines[0]
    if len(lines) > 1:
        made = ir.Location.callsite(lines[0], lines[1:])
    for name in reversed(names):
        made = ir.Location.name(name, made)
    return made


def _lines(location: Any) -> Iterator[_Line]:
    """Yields the lines of a stack, innermost first. It does not recurse on callers, because a stack may be long."""
    function = ""
    while True:
        match location:
            case ir.CallSiteLoc():
                yield from _lines(location.callee)
                location = location.caller
            case ir.NameLoc():
                function, location = location.name_str, location.child_loc
            case ir.FusedLoc() if location.locations:
                location = location.locations[0]
            case ir.FileLineColLoc():
                yield function, location
                return
            case _:
                return


def _renamed(line: _Line, stored: Callable[[str], str | None]) -> Any:
    function, at = line
    file = stored(at.filename)
    if file is None:
        return None
    made = ir.Location.file(file, at.start_line, at.start_col, at.end_line, at.end_col)
    return ir.Location.name(function, made) if function else made
