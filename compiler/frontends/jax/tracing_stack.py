"""Tracks which programs are being traced in the current thread. A program that is called inside another one is inlined
there, as a nested jit would be. `pathways/api/program.py` and `pw.pipeline` use it.

JAX's jit caches its traces. A program is inlined only inside another program, so JAX must not reuse such a trace
outside. A user context of JAX separates the two cases.
"""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

from pathways.dialect.jax_api import make_user_context

around: ContextVar[tuple[Any, ...]] = ContextVar("pathways_around", default=())
"""The calls of programs that are being traced in this context, innermost last."""
meshes_named: ContextVar[dict[Any, Any]] = ContextVar("pathways_meshes_named")
"""The slices that meshes stand for, as stated by the program that is being traced and the programs that it calls."""
_inside: Any = make_user_context(False)


@contextlib.contextmanager
def tracing(call: Any, meshes: dict[Any, Any] | None = None) -> Generator[None]:
    """Marks a call of a program as being traced, inside a `with` block. Called programs add to `meshes`, if given."""
    before = around.set((*around.get(), call))
    meshes_before = meshes_named.set(meshes_named.get({}) if meshes is None else meshes)
    try:
        with _inside(True):
            yield
    finally:
        meshes_named.reset(meshes_before)
        around.reset(before)
