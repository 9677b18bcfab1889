"""Defines observers of compiler passes. They print the IR, count changed ops, or save the files that reproduce a
failure. The pass manager notifies them before and after every pass.
"""

import hashlib
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.files import write_folder
from pathways.dialect.ir import pw
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import bytecode, parse, pretty, text
from pathways.dialect.phases import Phase
from pathways.dialect.topology import write_topology


class Instrument:
    """An observer, notified before and after every pass and at a failure. Then the IR is as the failed pass left it."""

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        pass

    def after(self, step: Pass, program: ProgramIR) -> None:
        pass

    def failed(self, step: Pass, error: Exception) -> None:
        pass


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass
class Printer(Instrument):
    """Prints the IR before and after named passes. `changed`: after passes that changed it. `tree`: into files."""

    before_passes: tuple[str, ...] = ()
    after_passes: tuple[str, ...] = ()
    after_all: bool = False
    changed: bool = False
    tree: Path | None = None
    echo: Callable[[str], None] = _to_stderr
    _digest: bytes = b""
    _count: int = 0

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        if self.changed:
            self._digest = _digest(program)
        if step.name in self.before_passes:
            self._print("before", step, program)

    def after(self, step: Pass, program: ProgramIR) -> None:
        if self.tree is not None:
            self._write(step, program, self.tree)
        wanted = self.after_all or step.name in self.after_passes
        if wanted or (self.changed and _digest(program) != self._digest):
            self._print("after", step, program)

    def _print(self, when: str, step: Pass, program: ProgramIR) -> None:
        self.echo(f"// ----- {when} {step.name} -----\n{pretty(program.read_module())}")

    def _write(self, step: Pass, program: ProgramIR, folder: Path) -> None:
        self._count += 1
        write_folder(folder, {f"{self._count:02}.{step.name}.mlir": text(program.read_module())})


def _digest(program: ProgramIR) -> bytes:
    """Hashes everything but the phase, which every pass writes."""
    attributes = program.attributes
    phase = program.phase
    del attributes["pw.phase"]
    digest = hashlib.sha256(bytecode(program.read_module().operation)).digest()
    program.phase = phase
    return digest


@dataclass
class Statistics(Instrument):
    """Counts the ops of each kind before and after every pass."""

    rows: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])
    _before: Counter[str] = field(default_factory=Counter[str])

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        self._before = _count_ops(program)

    def after(self, step: Pass, program: ProgramIR) -> None:
        now = _count_ops(program)
        for name in sorted(self._before.keys() | now.keys()):
            self.rows.append((step.name, name, self._before[name], now[name]))


def _count_ops(program: ProgramIR) -> Counter[str]:
    count: Counter[str] = Counter(op.operation.name for op in _ops(program))
    count["computations"] = count.pop("builtin.module", 0)
    return count


def _ops(program: ProgramIR) -> Iterator[Any]:
    for op in program.read_module().body.operations:
        yield op
        if isinstance(op, pw.PlanOp) or "pw.program" in op.operation.attributes:
            yield from op.operation.regions[0].blocks[0].operations


@dataclass
class Reproducer(Instrument):
    """Saves the IR from before a failing pass, the topology, and the command that reproduces the failure."""

    folder: Callable[[Exception], Path | None]
    """Makes the folder for a failure, or returns None if the failure is not worth one."""
    _snapshot: tuple[bytes, Phase, Session] | None = None
    _context: Any = None

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        self._snapshot = bytecode(program.read_module().operation), program.phase, session
        self._context = program.context

    def failed(self, step: Pass, error: Exception) -> None:
        if self._snapshot is None:
            return
        raw, phase, session = self._snapshot
        folder = self.folder(error)
        if folder is None:
            return
        files = {phase.dump_name: text(parse(raw, self._context))}
        words = ["pwc", "opt", str(folder / phase.dump_name), f"--pass-pipeline={pass_text(step)}"]
        if session.topology is not None:
            files["topology.toml"] = write_topology(session.topology)
            words.append(f"--topology={folder / 'topology.toml'}")
        command = shlex.join(words)
        write_folder(folder, files | {"reproduce.sh": f"{command}\n"})
        error.add_note(f"the IR before {step.name} is saved; this command reproduces the error: {command}")


def pass_text(step: Pass) -> str:
    """Formats a pass as `--pass-pipeline` accepts it, with the options that differ from their defaults."""
    options: list[str] = []
    for option in fields(step):
        value = getattr(step, option.name)
        if value != option.default:
            shown = getattr(value, "__name__", str(value)).replace(" ", "+")
            options.append(f"{option.name.replace('_', '-')}={shown.lower() if isinstance(value, bool) else shown}")
    name = step.spelled or step.name
    return f"{name}{{{' '.join(options)}}}" if options else name
