"""Keeps the plans of programs in the folder of the executable cache, so that the first call of a later process neither
lowers nor compiles a program that is known. `stages.py` asks it for each traced program.

A program has a folder, named by the digest of its content (`frontends/jax/content.py`). The file `slices` there has the
symbols of its slices and the paths of its source files. Each plan has a file, named by the digest of its topology,
bindings and options. All files are signed. A program is still traced in every process: its content is the trace.
Programs with host callbacks, primitives of the user's or pinned slices are not kept. Neither are plans by a user's own
policy or schedule.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from pathways.api.process import COMPILING, process
from pathways.compiler.collector import collector_paused
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.content import NoContent, digest_of_term, settings_term, term_of
from pathways.compiler.frontends.jax.devices import VirtualSlice, implicit_slice
from pathways.compiler.frontends.jax.trace import Traced
from pathways.compiler.pass_manager import Options, Timing
from pathways.compiler.passes.base import Session
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.dialect import signing
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.topology import Topology

FOLDER = "plans"
"""The folder in that of the executable cache."""
MAX_CONSTANT_BYTES = 64 << 20
"""The most bytes of constants with which a plan is kept."""
_SLICES = "slices"


class KeptPlans:
    """The plans of a traced program, of which some may be in the cache. Without a cache all are compiled."""

    def __init__(self, cache: Path | None, traced: Traced) -> None:
        self._traced = traced
        content = None if cache is None else traced.content()
        self._settings = None if content is None else content.settings
        self._cache = None if content is None else cache
        self._folder = "" if content is None else f"{FOLDER}/{content.digest}"
        self._mine: tuple[VirtualSlice, ...] = () if content is None else content.slices or (implicit_slice(),)
        self._files: dict[str, str] | None = None
        """The paths of source files, by their names in plans; None if no plan of the program is in the cache."""
        known = self._read(_SLICES)
        if known is None or content is None or content.has_arrays:
            self.slices: dict[str, VirtualSlice] = traced.emitted().slices
        if known is None:
            return
        numbers, self._files = cast("tuple[list[tuple[str, int]], dict[str, str]]", json.loads(known))
        self.slices = {symbol: self._mine[number] for symbol, number in numbers}

    def of(
        self, topology: Topology | None, options: Options, compiled: Callable[[Topology | None, Options], Compilation]
    ) -> tuple[Plan, Timing]:
        """Returns the plan for a topology and options: from the cache, or compiled and then kept there."""
        name = None
        if self._cache is not None:
            with COMPILING:
                name = plan_name(process().session(None, self.slices, topology), options)
        if name is not None and (found := self._kept(name)) is not None:
            return found, Timing()
        if name is not None and self._is_other_setting():  # they may affect the IR, if it has not been made yet
            name = None
        compilation = compiled(topology, options)
        plan = compilation.plan()
        if name is not None:
            self._keep(name, plan)
        return plan, compilation.timing

    def _is_other_setting(self) -> bool:
        try:
            return settings_term() != self._settings
        except NoContent:
            return True

    def stop(self) -> None:
        """Compiles all plans from now on, since the user may change the IR."""
        self._cache = None

    def _kept(self, name: str) -> Plan | None:
        raw = None if self._files is None else self._read(name)
        if raw is None or self._files is None:
            return None
        with contextlib.suppress(PathwaysError), collector_paused():
            return replace(read_plan(raw, name, self._files), marked=True)
        return None

    def _keep(self, name: str, plan: Plan) -> None:
        """Writes a plan. A full disk is not an error."""
        has_callbacks = any(c.callbacks for c in plan.computations)
        is_large = sum(map(len, plan.constants.values())) > MAX_CONSTANT_BYTES
        if has_callbacks or is_large or not self.slices or any(s not in self._mine for s in self.slices.values()):
            return
        numbers = [(symbol, self._mine.index(virtual)) for symbol, virtual in self.slices.items()]
        self._write(name, write_plan(plan))
        self._write(_SLICES, json.dumps([numbers, self._traced.files()]).encode())

    def _read(self, name: str) -> bytes | None:
        if self._cache is None:
            return None
        with contextlib.suppress(PathwaysError):
            return signing.read_signed(self._cache, f"{self._folder}/{name}")
        return None

    def _write(self, name: str, raw: bytes) -> None:
        if self._cache is not None:
            with contextlib.suppress(PathwaysError):
                signing.write_signed(self._cache, f"{self._folder}/{name}", raw)


def plan_name(session: Session, options: Options) -> str | None:
    """Names the plan for a session and options; None if they name code or files of the user's."""
    placement, schedule = options.placement, options.schedule
    is_known = isinstance(placement, str) and placement in POLICIES and schedule in (PROGRAM, *SCHEDULES)
    if not is_known or options.emit_schedule or session.analyzer is not None:
        return None
    with contextlib.suppress(NoContent):
        return digest_of_term((term_of(session.topology), term_of(session.bindings), term_of(options)))
    return None
