# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Shardy's MPMD dialect and its partitioner, as jaxlib has them: a compat module of this layer.

Neither has a public door. `jaxlib.mlir._mlir_libs._sdyMpmd` registers the dialect; `jaxlib._sdy_mpmd` has the phases of
the partitioner, and the lowering to IFRT IR. It is built for Google's own tree, where jaxlib is found inside of jax:
while it is imported, it asks for `jax.jaxlib._jax`. These names stand for jaxlib's own modules for that long, and no
longer: found any other way, jaxlib's core would be loaded twice, which ends the process.

A jaxlib that has neither is refused as PWC0125, where one of them is asked for; all else works without them.
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
"""What this project writes beside a fragment, and reads again: the action in a pipeline of each of its parts."""


def register(context: Context) -> None:
    """Makes a context read, verify and print the ops of the MPMD dialect. Raises PWC0125."""
    _found(_import_dialect).register_dialect(context)


def partitioner() -> Any:
    """Finds jaxlib's module of Shardy's partitioner. Raises PWC0125."""
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
