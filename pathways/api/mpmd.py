"""Runs programs of Shardy's MPMD compiler here. `pw.from_mpmd` converts one program. Inside `pw.mpmd_backend`, every
`mpmd.jit` runs here in place of Google's Pathways backend.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from pathways.api.process import COMPILING, process
from pathways.api.stages import Compiled, Lowered
from pathways.api.warn import warn
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.emit import Emitted
from pathways.compiler.frontends.jax.trace import Traced
from pathways.compiler.frontends.mpmd import shardy_objects
from pathways.compiler.frontends.mpmd.errors import NoMpmdJit, NotMpmd
from pathways.compiler.frontends.mpmd.read import read_mpmd
from pathways.compiler.frontends.mpmd.source import MpmdSource
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.user_line import caller

_STAGES, _LOWERED = "shardy.integrations.python.jax.mpmd.stages", "MpmdLowered"


def from_mpmd(program: Any, *, name: str = "program") -> Lowered:
    """Makes a program from the output of Shardy's MPMD compiler. Compile and call it like any other program.

    `program` may be the result of `mpmd.jit(f, config).lower(...)`: all shardings, the order and the schedule are then
    Shardy's. It may be the result of `.trace(...)`: fragments and their meshes are then Shardy's, and this compiler
    chooses shardings and schedule: `pw.from_mpmd(traced).compile(schedule="1f1b")`. It may also be the text (or
    bytecode) of a module after either phase, named `name`; its arguments are then flat. Shardy's package is not
    imported.

    Raises PWC0120 for any other object, PWC0121 for a phase before IMPORT, PWC0122 for a program that cannot run.
    Raises PWC0123 for another version of Shardy's package, PWC0125 if jaxlib has no MPMD dialect.
    """
    start, owner = time.perf_counter(), _Owner()
    source = _source(program, name, owner)
    with COMPILING:
        imported = read_mpmd(source, process().platform)
    for note in imported.notes:
        warn(f"{source.name}: {note}")
    built, known = imported.built, imported.known
    slices = {symbol: VirtualSlice(spec.devices) for symbol, spec in built.slices.items()}
    emitted = Emitted(built.program, built.constants, slices)
    timing = {"read": time.perf_counter() - start}
    traced = Traced(lambda: emitted, known.out_tree, timing)
    return Lowered(traced, known.in_tree, source.name)


@contextmanager
def mpmd_backend(topology: str | None = None, **options: Any) -> Generator[None]:
    """Runs programs that `mpmd.jit` compiles inside this block here, in place of Google's Pathways backend.

    `mpmd.jit(f, config)(*args)` then runs directly and returns `pw.Array`s. `topology` and `options` are those of
    `Lowered.compile`. Raises PWC0123 if Shardy's package was not imported before.
    """
    lowered = getattr(sys.modules.get(_STAGES), _LOWERED, None)
    if lowered is None:
        have, rule = f"the module {_STAGES} is not imported", "Shardy's Python package, imported before this call"
        advice = "from shardy.integrations.python.jax import mpmd"
        raise PathwaysError(
            NoMpmdJit(what="mpmd.jit without its package", have_=have, rule=rule, advice=advice, where=caller())
        )
    before: Callable[..., Any] = lowered.compile

    def compile_here(self: Any, *_: Any, **__: Any) -> Compiled:
        return from_mpmd(self).compile(topology, **options)

    lowered.compile = compile_here
    try:
        yield
    finally:
        lowered.compile = before


class _Owner:
    """Keeps the host callback functions of a program alive until its module holds them."""


def _source(program: Any, name: str, owner: object) -> MpmdSource:
    if isinstance(program, str | bytes):
        return MpmdSource(name, program)
    if shardy_objects.is_lowered(program):
        return shardy_objects.of_lowered(program, owner)
    if shardy_objects.is_traced(program):
        return shardy_objects.of_traced(program, owner, caller())
    have = f"a {type(program).__name__}"
    advice = "pw.from_mpmd(mpmd.jit(f, config).lower(*args)); for a pw.program, .lower(*args) is enough"
    raise PathwaysError(NotMpmd(name="the argument", have_=have, advice=advice, where=caller()))
