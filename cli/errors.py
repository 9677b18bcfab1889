"""Defines the errors of the command line: bad sources, inputs, names and output. The modules of `cli/` raise them, and
`pwc explain` lists them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


@dataclass(frozen=True)
class BadSource(Explained):
    code: ClassVar[str] = "PWC0801"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{path} cannot be used as a source"
    path: str


@dataclass(frozen=True)
class SourceFailed(Diagnostic):
    code: ClassVar[str] = "PWC0802"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{path} raised {kind} while {stage}"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "a file that imports, and a program that traces on its example_args"
    hint: ClassVar[str] = "{advice}"
    path: str
    kind: str
    stage: str
    message: str
    advice: str


@dataclass(frozen=True)
class BadInputs(Diagnostic):
    code: ClassVar[str] = "PWC0803"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the inputs do not match the plan"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "--inputs in.npz, or --input 'NAME=@file.npy' for each; none at all: random data"
    have_: str
    rule: str


@dataclass(frozen=True)
class Mismatch(Diagnostic):
    code: ClassVar[str] = "PWC0804"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "results differ from the reference"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a relative difference of at most {tolerance:g}"
    hint: ClassVar[str] = "pwc inspect plan.bin --all shows what makes each result; hosts may add in another order"
    have_: str
    tolerance: float


@dataclass(frozen=True)
class UnknownCode(Diagnostic):
    code: ClassVar[str] = "PWC0806"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is no error, name, command or variable {asked}"
    have: ClassVar[str] = "{asked}"
    need: ClassVar[str] = "one of {known}"
    hint: ClassVar[str] = "pwc explain lists all"
    asked: str
    known: str


@dataclass(frozen=True)
class NothingNamed(Diagnostic):
    code: ClassVar[str] = "PWC0807"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the plan holds nothing named {name}"
    have: ClassVar[str] = "{name}"
    need: ClassVar[str] = "a slice, a call, a value that moves, or FILE:LINE"
    hint: ClassVar[str] = "{known}"
    name: str
    known: str


@dataclass(frozen=True)
class UnmetExpectations(Diagnostic):
    code: ClassVar[str] = "PWC0808"
    title: ClassVar[str] = "{what}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "// expected-error@+1 {{{{text of the error}}}} names the line of the op that is wrong"
    what: str
    have_: str
    rule: str


@dataclass(frozen=True)
class NoDump(Diagnostic):
    code: ClassVar[str] = "PWC0805"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the plan holds no dump of phase {phase}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a plan compiled with --with-phases"
    hint: ClassVar[str] = "pwc compile model.py --with-phases -o plan.bin"
    phase: str
    have_: str


@dataclass(frozen=True)
class NotWell(Diagnostic):
    code: ClassVar[str] = "PWC0809"
    title: ClassVar[str] = "{count} of the checks above found something"
    have: ClassVar[str] = "a machine on which programs do not run as they should"
    need: ClassVar[str] = "every check ok"
    hint: ClassVar[str] = "do what stands behind `try`, from top to bottom, and run pwc doctor again"
    count: int


@dataclass(frozen=True)
class OutputLost(Diagnostic):
    code: ClassVar[str] = "PWC0810"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "what was printed did not arrive"
    have: ClassVar[str] = "standard output: {problem}"
    need: ClassVar[str] = "a file, a terminal or a pipe that takes all of it"
    hint: ClassVar[str] = "free some space, or print elsewhere; all files that the command writes are written"
    problem: str


@dataclass(frozen=True)
class NoTerminal(Diagnostic):
    code: ClassVar[str] = "PWC0713"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "pwc top has nowhere to draw"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a terminal that can move its cursor"
    hint: ClassVar[str] = "pwc top --once prints one frame anywhere; --json a line for each"
    have_: str
