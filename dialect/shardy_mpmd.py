# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Imports Shardy's MPMD dialect and its partitioner, which are private parts of jaxlib. The MPMD front end and `pwc
compile --emit` call it.

It is a compat module of this layer. Neither module has a public API. `jaxlib.mlir._mlir_libs._sdyMpmd` registers the
dialect. `jaxlib._sdy_mpmd` has the phases of the partitioner, and the lowering to IFRT IR.

`_sdy_mpmd` is built for Google's source tree, where jaxlib is inside jax: its import needs `jax.jaxlib._jax`. During
the import, that name is an alias of jaxlib's own module, and it is removed afterwards. Otherwise jaxlib's core would be
loaded twice, which aborts the process.

If jaxlib lacks one of them, a call that needs it raises PWC0125. Everything else works without them.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jaxlib

from pathways.dialect.bare_mlir import Context, Module
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import NoShardy
from pathways.dialect.versions import WRITER

ACTIONS, NO_ACTION = "actions", "-"
"""The attribute of a fragment that lists the pipeline action of each of its parts, and the text for no action."""


def register(context: Context) -> None:
    """Registers the MPMD dialect in a context, so that its ops are read, verified and printed. Raises PWC0125."""
    _found(_import_dialect).register_dialect(context)


def partitioner() -> Any:
    """Returns jaxlib's module of Shardy's partitioner. Raises PWC0125."""
    return _found(_import_partitioner)


def lower_to_ifrt(module: Module) -> None:
    """Lowers a partitioned MPMD module to IFRT IR, in place. Raises PWC0125, and JaxRuntimeError if refused."""
    partitioner().lower_to_ifrt(module)


def _import_dialect() -> Any:
    from jaxlib.mlir._mlir_libs import _sdyMpmd

    return _sdyMpmd


def _import_partitioner() -> Any:
    with _jaxlib_inside_of_jax():
        from jaxlib import _sdy_mpmd  # pyright: ignore[reportAttributeAccessIssue]

        return _sdy_mpmd


def _found(import_: Callable[[], Any]) -> Any:
    try:
        return import_()
    except ImportError as error:
        raise PathwaysError(NoShardy(version=WRITER["jaxlib"], problem=str(error))) from None


@contextmanager
def _jaxlib_inside_of_jax() -> Generator[None]:
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    aliases: dict[str, Any] = {"jax.jaxlib": jaxlib, "jax.jaxlib._jax": _jax}
    added = {name: module for name, module in aliases.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
