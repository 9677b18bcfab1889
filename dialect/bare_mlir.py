# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Wraps jaxlib's MLIR bindings without importing JAX. The checks of the modules in a plan use it. They also run in a
separate process, where importing JAX would be too slow.

It is a compat module of this layer, like `mlir.py`, and must not import JAX. `jax.extend.mlir` is the public API of the
same names, but it imports all of JAX. That takes five times as long as all work of the vetting process.
`jax.interpreters.mlir.make_ir_context` fills its contexts with `_jax_mlir_ext.register_dialects`, too.
"""

from typing import Any, TypeAlias

from jaxlib.mlir import ir as _ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo as _chlo
from jaxlib.mlir.dialects import mpmd as _mpmd
from jaxlib.mlir.dialects import sdy as _sdy
from jaxlib.mlir.dialects import stablehlo as _stablehlo

from pathways.dialect.memo import forget

bare_ir: Any = _ir
bare_sdy: Any = _sdy

Module: TypeAlias = Any
Operation: TypeAlias = Any
Attribute: TypeAlias = Any
Type: TypeAlias = Any
Context: TypeAlias = Any


class _Bare(_ir.Context):
    """An MLIR context without the dialects that the constructor of `ir.Context` loads."""

    def __init__(self) -> None:
        super(_ir.Context, self).__init__()


def make_bare_context() -> Context:
    """Makes a context with JAX's dialects and without threads, so that a crash is reproducible."""
    from jaxlib.mlir.dialects import mhlo  # it takes long to import

    forget()
    context: Any = _Bare()
    registry: Any = _ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    _sdy.register_dialect(context)
    _mpmd.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    _chlo.register_dialect(context)
    _stablehlo.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


def read_portable(raw: bytes, context: Context) -> Module:
    """Reads the module of a portable artifact. Raises ValueError, MLIRError or RuntimeError if MLIR refuses it."""
    return _stablehlo.deserialize_portable_artifact(context, raw)


def read_text(source: bytes, context: Context) -> Module:
    """Parses the module of a dump. Raises ValueError or MLIRError if the text is invalid."""
    return bare_ir.Module.parse(source.decode(), context=context)
