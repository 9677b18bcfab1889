"""Runs the compiler from IR of any phase up to the plan, and can dump the IR of each phase. The command line and the
Python API call it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pathways.compiler.collector import collector_paused
from pathways.compiler.compare_schedules import Alternative, compare_schedules, with_help
from pathways.compiler.emit.forms import form_text
from pathways.compiler.errors import OutOfMemory
from pathways.compiler.export import extract_plan
from pathways.compiler.frontends.jax.pipeline.table import StageTable
from pathways.compiler.frontends.mpmd.read import is_mpmd, read_mpmd
from pathways.compiler.frontends.mpmd.source import MpmdSource
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import Options, Timing, check_reaches, default_passes, leave_out, run_passes
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.verifier import verify_program
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments, WrongPhase
from pathways.dialect.files import write_folder
from pathways.dialect.host_callbacks import hold, read_callbacks
from pathways.dialect.ir.arguments import constant_name
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.wellformed import check_wellformed
from pathways.dialect.mlir import text
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.platforms import EVERYWHERE
from pathways.dialect.rewrite_locations import parse_named

CONSTANTS_FOLDER = "constants"
"""The folder next to the dumps that holds the bytes of large constants."""


@dataclass
class _Dumps(Instrument):
    """Keeps the IR of every phase."""

    dumps: dict[Phase, str]

    def after(self, step: Pass, program: ProgramIR) -> None:
        self.dumps[program.phase] = text(program.read_module())


@dataclass
class Compilation:
    """A program during compilation: its current IR, and a dump of every phase that it has passed."""

    program: ProgramIR
    constants: Mapping[str, bytes]
    session: Session
    timing: Timing = field(default_factory=Timing)
    dumps: dict[Phase, str] = field(default_factory=dict[Phase, str])
    pipelines: tuple[StageTable, ...] = ()
    """The cut of each loss into stages; empty if compilation started from a dump."""

    def advance(
        self,
        upto: Phase = Phase.PLAN,
        *,
        passes: Sequence[Pass] | None = None,
        options: Options | None = None,
        keep_dumps: bool = False,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        """Runs the passes still needed to reach `upto`: the default ones with `options`, or `passes`.

        `options.without` applies to both. Raises PWC0711 if the passes left out are needed to reach a phase.
        """
        if keep_dumps:
            self.dumps.setdefault(self.program.phase, text(self.program.read_module()))
        options = options or Options()
        pipeline = default_passes(options) if passes is None else leave_out(passes, options.without)
        check_reaches(pipeline, options.without, self.program.phase, upto)
        source = self._source(passes)
        watching = [*instruments, *([_Dumps(self.dumps)] if keep_dumps else [])]
        try:
            with collector_paused():
                timing = run_passes(self.program, pipeline, self.session, upto=upto, instruments=watching)
        except PathwaysError as error:
            if source is None or not any(isinstance(d, OutOfMemory) for d in error.diagnostics):
                raise
            raise with_help(error, source, self.session, options) from None
        for name, seconds in timing.passes.items():
            self.timing.add(name, seconds)
        if not self.program.phase.reached(upto):
            have, need = self.program.phase.value, upto.value
            raise PathwaysError(WrongPhase(what="the step after the passes", have_phase=have, need_phase=need))

    def _source(self, passes: Sequence[Pass] | None) -> ProgramIR | None:
        """Returns a copy of the program, to try other options if its plan does not fit; None if not needed."""
        topology = self.session.topology
        stated = topology is not None and any(i.memory is not None for i in topology.islands)
        if passes is not None or not stated or self.program.phase is not Phase.TRACE:
            return None
        return self.program.copy()

    def compare(self, options: Options) -> list[Alternative]:
        """Compiles the program under every schedule and returns the results for comparison. Requires phase `trace`."""
        check_reaches(default_passes(options), options.without, self.program.phase, Phase.PLAN)
        return compare_schedules(self.program, self.session, options, self.constants)

    def plan(self, *, with_phases: bool = False) -> Plan:
        """Extracts the plan. Requires phase `plan`."""
        with collector_paused():
            plan = extract_plan(self.program, self.constants)
        if not with_phases:
            return plan
        return replace(plan, phases={p.dump_name: t.encode() for p, t in self.dumps.items()})

    def emit(self, form: str) -> str:
        """Converts the program to another form, `mpmd` or `ifrt`. Requires exactly phase `schedule`."""
        with collector_paused():
            return form_text(self.program, self.constants, form)

    def write_dumps(self, folder: Path) -> list[Path]:
        """Writes `NN.phase.mlir` for every phase passed, and the constants next to the dumps."""
        if self.constants:
            write_folder(folder / CONSTANTS_FOLDER, self.constants)
        return write_folder(folder, {phase.dump_name: dump for phase, dump in self.dumps.items()})


@dataclass(frozen=True)
class Dump:
    """A program read from a file, the bytes of its large constants, and notes for the user about the import."""

    program: ProgramIR
    constants: dict[str, bytes]
    notes: tuple[str, ...] = ()


def read_dump(path: Path, platform: str = EVERYWHERE) -> Dump:
    """Reads and verifies a dump with its constants, or a program of Shardy's MPMD dialect for a platform.

    Raises PWC0702, PWC0701, PWC0104; for Shardy's programs also PWC0120-PWC0122, PWC0125.
    """
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(path), str(error)) from None
    if is_mpmd(source):
        imported = read_mpmd(MpmdSource(str(path), source), platform)
        return Dump(imported.built.program, imported.built.constants, imported.notes)
    program = parse_program(source, str(path))
    constants: dict[str, bytes] = {}
    for function in program.functions:
        for value, argument in enumerate(function.arguments):
            if argument.constant is not None:
                beside = path.parent / CONSTANTS_FOLDER / argument.constant
                constants[argument.constant] = _read_constant(beside, function.flow.types[value].bytes)
    return Dump(program, constants)


def _read_constant(path: Path, size: int) -> bytes:
    """Reads the bytes of a constant. Its file name must be the digest of these bytes."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from None
    if constant_name(raw) != path.name or len(raw) != size:
        raise _unreadable(str(path), f"{len(raw)} bytes that do not match its name, the digest of {size} bytes")
    return raw


def parse_program(source: str, name: str) -> ProgramIR:
    """Parses and verifies IR text. Dumps state their platform. Shardy's programs do not, and are compiled for CPU."""
    if is_mpmd(source):
        return read_mpmd(MpmdSource(name, source), EVERYWHERE).built.program
    module = parse_named(source, name)
    if "pw.phase" not in module.operation.attributes:
        raise _unreadable(
            name, "MLIR without pw.phase: neither a dump of this compiler nor a program of Shardy's MPMD dialect"
        )
    check_wellformed(module)
    program = ProgramIR(module)
    verify_program(program)
    for function in program.functions:
        for computation in function.computations.values():
            hold(program.context, read_callbacks(computation))
    return program


def _unreadable(path: str, problem: str) -> PathwaysError:
    advice = "pwc compile model.py --dump-phases-to DIR writes dumps, and their constants beside them"
    rule = "a dump of a phase (.mlir) with its constants, or a program of Shardy's MPMD dialect"
    return PathwaysError(BadArguments(problem=f"{path} cannot be read", have_=problem, rule=rule, advice=advice))
