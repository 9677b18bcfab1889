"""Defines the errors of the command line: bad sources, inputs, names and output. The modules of `cli/` raise them, and
`pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class BadSource(Explained):
    code: ClassVar[str] = "PWC0801"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{path} cannot be used as a source"
    path: str


class SourceFailed(Diagnostic):
    code: ClassVar[str] = "PWC0802"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{path} raised {kind} while {stage}"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "a file that can be imported, and a program that can be traced with its example_args"
    hint: ClassVar[str] = "{advice}"
    path: str
    kind: str
    stage: str
    message: str
    advice: str


class BadInputs(Diagnostic):
    code: ClassVar[str] = "PWC0803"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the inputs do not match the plan"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "--inputs in.npz, or --input 'NAME=@file.npy' for each; without either, inputs are random"
    have_: str
    rule: str


class Mismatch(Diagnostic):
    code: ClassVar[str] = "PWC0804"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the results differ from the reference"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "relative differences of at most {tolerance:g}"
    hint: ClassVar[str] = (
        "pwc inspect plan.bin --all shows the computation of each result; hosts may add in another order"
    )
    have_: str
    tolerance: float


class UnknownCode(Diagnostic):
    code: ClassVar[str] = "PWC0806"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is no error code, public name, command or variable {requested}"
    have: ClassVar[str] = "{requested}"
    need: ClassVar[str] = "one of {known}"
    hint: ClassVar[str] = "pwc explain lists all of them"
    requested: str
    known: str


class NothingNamed(Diagnostic):
    code: ClassVar[str] = "PWC0807"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the plan contains nothing named {name}"
    have: ClassVar[str] = "{name}"
    need: ClassVar[str] = "a slice, a call, a transferred value, or FILE:LINE"
    hint: ClassVar[str] = "{known}"
    name: str
    known: str


class UnmetExpectations(Diagnostic):
    code: ClassVar[str] = "PWC0808"
    title: ClassVar[str] = "{what}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = (
        "// expected-error@+1 {{{{text of the error}}}} goes directly before the line of the invalid op"
    )
    what: str
    have_: str
    rule: str


class NoDump(Diagnostic):
    code: ClassVar[str] = "PWC0805"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the plan contains no dump of phase {phase}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a plan compiled with --with-phases"
    hint: ClassVar[str] = "pwc compile model.py --with-phases -o plan.bin"
    phase: str
    have_: str


class NotWell(Diagnostic):
    code: ClassVar[str] = "PWC0809"
    title: ClassVar[str] = "{count} of the checks above failed"
    have: ClassVar[str] = "a machine on which programs may not run correctly"
    need: ClassVar[str] = "every check `ok`"
    hint: ClassVar[str] = "follow the lines after `try` from top to bottom, and run pwc doctor again"
    count: int


class OutputLost(Diagnostic):
    code: ClassVar[str] = "PWC0810"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the output could not be written"
    have: ClassVar[str] = "standard output: {problem}"
    need: ClassVar[str] = "a file, a terminal or a pipe that accepts all of the output"
    hint: ClassVar[str] = "free space, or redirect the output; the files that the command writes are complete"
    problem: str


class NoTerminal(Diagnostic):
    code: ClassVar[str] = "PWC0713"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "pwc top cannot draw here"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a terminal whose cursor can be moved"
    hint: ClassVar[str] = "pwc top --once prints one frame anywhere; --json prints one line per frame"
    have_: str
