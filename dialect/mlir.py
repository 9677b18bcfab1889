# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
"""Wraps jaxlib's MLIR bindings: makes contexts, parses and prints modules, reads source locations. Compiler and dialect
use MLIR only through this module and `bare_mlir.py`, which needs no JAX.

It is the compat module of this layer. `jax.extend.mlir` is the public API of `ir`, `passmanager` and the `func`, `sdy`
and `stablehlo` dialects. Two functions have no public API. The first makes a context with all of JAX's dialects, as JAX
uses it to lower: `jax.interpreters.mlir.make_ir_context` shares one context since 0.11. The second declares ops in
Python: it needs the `_cext` registry that jaxlib's generated dialects use.
"""

import contextlib
import io
import itertools
import re
import threading
from collections.abc import Generator
from functools import lru_cache
from typing import Any, TypeAlias

import jax.extend.mlir as _mlir
from jax._src.interpreters import mlir as _mlir_inside
from jax.extend.mlir import ir as _ir
from jax.extend.mlir import passmanager as _passmanager
from jax.extend.mlir.dialects import func as _func
from jax.extend.mlir.dialects import sdy as _sdy
from jax.extend.mlir.dialects import stablehlo as _stablehlo_dialect
from jax.interpreters import mlir as _jax_mlir
from jaxlib.mlir._mlir_libs import _mlir as _cext

from pathways.dialect.bare_mlir import Attribute as Attribute
from pathways.dialect.bare_mlir import Context as Context
from pathways.dialect.bare_mlir import Module as Module
from pathways.dialect.bare_mlir import Operation as Operation
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.errors import UnparsableIR
from pathways.dialect.jax_api import JaxRuntimeError
from pathways.dialect.memo import forget, remembered
from pathways.dialect.sources import file_here
from pathways.dialect.text_depth import check_nesting

ir: Any = _ir
passmanager: Any = _passmanager
func: Any = _func
sdy: Any = _sdy
_extend_mlir: Any = _mlir
_stablehlo: Any = _stablehlo_dialect

Value: TypeAlias = Any


def register_dialect(cls: Any) -> Any:
    return _cext.register_dialect(cls)


def register_operation(dialect: Any, cls: Any) -> Any:
    return _cext.register_operation(dialect)(cls)


# Without the prefix, every access to a pw op retries an import: 320 us an op instead of 2.
_cext.globals.append_dialect_search_prefix("pathways.dialect.ir")


_new_context: Any = getattr(_mlir_inside, "_create_ir_context", _jax_mlir.make_ir_context)
"""Makes a new context. Since 0.11 the public function reuses and keeps one for ten calls a thread: a memory leak."""


def make_context() -> Context:
    """Makes a new context with JAX's dialects that also accepts the pw ops."""
    forget()
    context: Any = _new_context()
    context.allow_unregistered_dialects = True
    # No threads: a thread that reports an error needs the GIL, which this thread holds while it waits: a deadlock.
    context.enable_multithreading(False)
    return context


def parse(source: str | bytes, context: Context, name: str = "the input") -> Module:
    """Parses text or bytecode. Raises PWC0702 if MLIR cannot read it."""
    try:
        return ir.Module.parse(source, context=context)
    except (ir.MLIRError, ValueError) as error:
        message = str(error).strip().replace('"-":', f'"{name}":')  # MLIR does not know the name of the file
        raise PathwaysError(UnparsableIR(name=name, message=message)) from None


def parse_text(source: str, name: str, context: Context | None = None) -> Module:
    """Parses untrusted text, by default in a new context. Raises PWC0709 for text that would crash MLIR, or PWC0702."""
    check_nesting(source, name)
    for escaped in _STRING.finditer(source) if _BYTE.search(source) else ():
        if not _is_text(escaped[0]):  # MLIR accepts any bytes; its Python bindings do not
            raise PathwaysError(UnparsableIR(name=name, message=f"{escaped[0]} is not UTF-8 text"))
    return parse(source, context or make_context(), name)


def problem_of(error: Any) -> tuple[str, Where | None]:
    """Returns the message of an MLIR error without its notes, and the user's line."""
    for found in error.error_diagnostics if isinstance(error, ir.MLIRError) else ():
        if found.severity == ir.DiagnosticSeverity.ERROR:
            return found.message, _read_location(found.location.attr)[1]
    return str(error).strip() or type(error).__name__, None


@contextlib.contextmanager
def registered_only(context: Context) -> Generator[None]:
    """Makes verification refuse unregistered ops inside the `with` block. Shardy's passes crash on such ops."""
    context.allow_unregistered_dialects = False
    try:
        yield
    finally:
        context.allow_unregistered_dialects = True


def text(module: Module) -> str:
    """Prints the module with locations and value names, the format of every dump."""
    return module.operation.get_asm(enable_debug_info=True, use_name_loc_as_prefix=True)


def pretty(module: Module) -> str:
    """Prints the module for reading: with value names, without locations."""
    return module.operation.get_asm(use_name_loc_as_prefix=True)


def short_text(operation: Operation) -> str:
    """Prints the first 400 characters of an op, for messages."""
    printed = str(operation)
    return printed if len(printed) <= 400 else f"{printed[:400]}..."


def bytecode(operation: Operation, version: int | None = None) -> bytes:
    out = io.BytesIO()
    operation.write_bytecode(out, version)
    return out.getvalue()


WITHOUT_USES = 2
"""The last bytecode version that does not store the order of uses of values; text does not store it either."""


MAX_REMEMBERED_BYTES = 1 << 18
"""The size of the largest module whose portable form is remembered, in bytes."""


def portable(raw: bytes) -> bytes:
    """Converts StableHLO bytecode to VHLO of the oldest version that has all its ops, which most jaxlibs can read.

    It takes 3 to 5 ms, so the last results are kept: equal computations are in plans of several schedules.
    """
    return _remembered_portable(raw) if len(raw) <= MAX_REMEMBERED_BYTES else _portable(raw)


def _portable(raw: bytes) -> bytes:
    requirement = _stablehlo.StablehloCompatibilityRequirement
    recent = (
        _stablehlo.get_version_from_compatibility_requirement(r) for r in (requirement.WEEK_12, requirement.WEEK_4)
    )
    for version in (_stablehlo.get_minimum_version(), *recent):
        try:
            return _extend_mlir.serialize_portable_artifact(raw, version, True)
        except JaxRuntimeError:  # this version lacks one of the ops
            continue
    return _extend_mlir.serialize_portable_artifact(raw, _stablehlo.get_current_version(), True)


_remembered_portable = lru_cache(128)(_portable)


def from_portable(raw: bytes, context: Context | None = None) -> Module:
    """Reads the module of a portable artifact, by default in a new context, which takes 4 ms."""
    with context or make_context():
        return _extend_mlir.deserialize_portable_artifact(raw)


def without_locations(raw: bytes) -> bytes:
    """Returns the bytecode of a portable module without source locations, which is equal for equal code at other lines.

    Takes 1 ms. Raises ValueError, MLIRError or RuntimeError if MLIR refuses the module.
    """
    with _READING:  # a context is for one thread at a time, and making one takes 4 ms
        context = _reading_context(next(_modules_read) // MODULES_PER_CONTEXT)
        module, found = from_portable(raw, context), io.BytesIO()
        with context:
            passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
            module.operation.write_bytecode(found)
        return found.getvalue()


MODULES_PER_CONTEXT = 64
"""Number of modules that are read in one context, which keeps their constants in memory."""
_READING = threading.Lock()
_modules_read = itertools.count()


@lru_cache(1)
def _reading_context(number: int) -> Context:
    """Returns the last context in which modules are read, or makes the next."""
    return make_context()


def location(where: Where | None, name: str, context: Context) -> Any:
    """Makes a location of `name` at the user's line; the name becomes the prefix of the printed values."""
    child = ir.Location.unknown(context)
    if where is not None:
        child = ir.Location.file(where.file, where.line, 1, context=context)
        if where.function:
            child = ir.Location.name(where.function, child, context=context)
    return ir.Location.name(name, child, context=context)


_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"\(')
_FIRST = re.compile(r'loc\("((?:[^"\\]|\\.)*)"[()]')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")


def where_of(operation: Operation) -> Where | None:
    """Returns the user's line of an op. The bindings give a location only as text: `loc("h"("f"("model.py":3:1)))`."""
    return _read_location(operation.location.attr)[1]


def name_of(operation: Operation) -> str:
    """Returns the name that `location` gave to an op."""
    return _read_location(operation.location.attr)[0]


def name_and_place_of(operation: Operation) -> tuple[str, Where | None]:
    """Returns `name_of` and `where_of` of an op in one call, which is faster for many ops."""
    return _read_location(operation.location.attr)


@remembered
def _read_location(attribute: Any) -> tuple[str, Where | None]:
    printed = str(attribute)
    first, found = _FIRST.match(printed), _FILE.search(printed)
    name = _unescape(first[1]) if first else ""
    if found is None:
        return name, None
    names = [_unescape(n) for n in _NAME.findall(printed[: found.start()])]
    file = _unescape(found[1])
    here = file_here(attribute.context, file)
    return name, Where(file, int(found[2]), names[-1] if len(names) > 1 else "", here)


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ESCAPED_BYTE = re.compile(rb"\\([0-9A-Fa-f]{2})")
_BYTE = re.compile(r"\\[89A-Fa-f][0-9A-Fa-f]|\\00")


def _is_text(quoted: str) -> bool:
    raw = quoted.replace("\\\\", "\\5C").encode()
    try:
        return "\0" not in _ESCAPED_BYTE.sub(lambda m: bytes([int(m[1], 16)]), raw).decode()
    except UnicodeDecodeError:
        return False


def _unescape(quoted: str) -> str:
    raw = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), quoted.replace("\\\\", "\\5C"))
    return raw.encode("latin-1", "replace").decode("utf-8", "replace") if not raw.isascii() else raw
