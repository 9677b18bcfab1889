"""Parses and checks each StableHLO module that a front end passes to the program builder. Modules with equal content
become one. `draft.py` calls it.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.host_callbacks import hold, read_callbacks
from pathways.dialect.ir.functions import main_of
from pathways.dialect.ir.wellformed import check_computation
from pathways.dialect.mlir import Module, ir, parse, parse_text
from pathways.dialect.rewrite_locations import UNNAMED, rewrite_locations
from pathways.dialect.sources import Sources


@dataclass(frozen=True)
class CalledComputation:
    """The computation that a call runs: a StableHLO module with a public @main, as text or bytecode."""

    name: str
    source: str | bytes


@dataclass(frozen=True, eq=False)
class ParsedComputation:
    """A computation in the program's context, the digest of its content, and the types of its results."""

    module: Module
    digest: str
    types: list[ArrayType]


def parse_called(
    computation: CalledComputation, where: Where | None, context: Any, sources: Sources
) -> ParsedComputation:
    """Parses and checks a computation. Errors carry the line that the computation states, or else `where`."""
    source, name = computation.source, computation.name
    try:
        if isinstance(source, str):
            module = parse_text(source, name, context)
            rewrite_locations(module.operation, lambda file: None if file == UNNAMED else sources.stored(file))
        else:
            module = parse(source, context, name)
        module.operation.attributes["sym_name"] = ir.StringAttr.get("computation", context)
        check_computation(module.operation)
    except PathwaysError as error:
        raise PathwaysError(*(replace(d, where=d.where or where) for d in error.diagnostics)) from None
    hold(context, read_callbacks(module.operation))
    digest = hashlib.sha256(module.operation.get_asm().encode()).hexdigest()
    results = main_of(module.operation).type.results
    return ParsedComputation(module, digest, [from_mlir(t) for t in results])
