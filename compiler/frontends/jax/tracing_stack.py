"""Which programs are being traced here: a program that another one calls is a part of it.

JAX's own jit keeps what it traced. What it traces inside of a program, where programs are opened, it must not take for
what it traces outside, where they are not: the context tells them apart.
"""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

from pathways.dialect.jax_api import make_user_context

around: ContextVar[tuple[Any, ...]] = ContextVar("pathways_around", default=())
"""The calls of programs that are being traced in this context, the innermost last."""
meshes_named: ContextVar[dict[Any, Any]] = ContextVar("pathways_meshes_named")
"""The slices that meshes stand for, as the program that is being traced says, and the programs that it calls."""
_inside: Any = make_user_context(False)


@contextlib.contextmanager
def tracing(call: Any, meshes: dict[Any, Any] | None = None) -> Generator[None]:
    """While it lasts, a call of a program is being traced. The programs that it calls add to `meshes`, if given."""
    before = around.set((*around.get(), call))
    meshes_before = meshes_named.set(meshes_named.get({}) if meshes is None else meshes)
    try:
        with _inside(True):
            yield
    finally:
        meshes_named.reset(meshes_before)
        around.reset(before)
