"""Defines the errors of the dialect layer: invalid IR, topology files, plan files, keys and settings. All layers raise
them, and `pwc explain` lists them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


@dataclass(frozen=True)
class InvalidIR(Diagnostic):
    code: ClassVar[str] = "PWC0701"
    title: ClassVar[str] = "the IR is not valid: {op} {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "look at the op in the dump of the phase before, or rerun with --print-ir-after-all"
    op: str
    problem: str
    have_: str
    rule: str


@dataclass(frozen=True)
class UnparsableIR(Diagnostic):
    code: ClassVar[str] = "PWC0702"
    title: ClassVar[str] = "{name} is not MLIR that this tool can read"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "the text of a module with pw ops, as --dump-phases-to writes it"
    hint: ClassVar[str] = "print with debug info; do not edit attributes by hand without pwc opt to check them"
    name: str
    message: str


@dataclass(frozen=True)
class TooDeep(Diagnostic):
    code: ClassVar[str] = "PWC0709"
    title: ClassVar[str] = "{name} is nested too deep to be read"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "at most {most} brackets, regions or aliases inside each other"
    hint: ClassVar[str] = "pwc compile model.py --dump-phases-to DIR writes the dump again"
    name: str
    problem: str
    most: int


@dataclass(frozen=True)
class WrongPhase(Diagnostic):
    code: ClassVar[str] = "PWC0703"
    title: ClassVar[str] = "{what} needs IR of phase {need_phase}"
    have: ClassVar[str] = "IR of phase {have_phase}"
    need: ClassVar[str] = "phase {need_phase}"
    hint: ClassVar[str] = "pwc compile runs the phases between, from a source or an earlier dump"
    what: str
    have_phase: str
    need_phase: str


@dataclass(frozen=True)
class BadTopology(Diagnostic):
    code: ClassVar[str] = "PWC0704"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the topology {source} cannot be read"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "islands=N,hosts=N,devices=N[,kind=K][,memory=BYTES], or a TOML file with [[island]] tables"
    hint: ClassVar[str] = (
        "islands=2,devices=4 is two islands of one host with four devices; docs/topologies.md has every field of a file"
    )
    source: str
    problem: str


@dataclass(frozen=True)
class BadChoice(Diagnostic):
    code: ClassVar[str] = "PWC0115"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{source} does not say how to split a loss"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a file of stages, data, model, microbatches, schedule, remat, islands, cuts and param_specs"
    hint: ClassVar[str] = "pwc search model.py:loss --topology FILE --batch N -o choice.toml writes it"
    source: str
    problem: str


@dataclass(frozen=True)
class BadArguments(Explained):
    code: ClassVar[str] = "PWC0104"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError, ValueError)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{problem}"
    problem: str


@dataclass(frozen=True)
class BadSetting(Diagnostic):
    code: ClassVar[str] = "PWC0707"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{source} cannot be read"
    have: ClassVar[str] = "{value}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{example}"
    source: str
    value: str
    rule: str
    example: str


@dataclass(frozen=True)
class CannotWrite(Diagnostic):
    code: ClassVar[str] = "PWC0606"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{path} cannot be written"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{advice}"
    path: str
    problem: str
    rule: str = "a path in a folder that exists"
    advice: str = "make the folder first, or choose another path"


@dataclass(frozen=True)
class NoThread(Diagnostic):
    code: ClassVar[str] = "PWC0521"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the thread {thread} cannot be started"
    have: ClassVar[str] = "{running} Python threads run; the system refuses another"
    need: ClassVar[str] = "a few threads for each host and client"
    hint: ClassVar[str] = "ulimit -u, and the pids limit of the container, say how many threads there may be"
    thread: str
    running: int


@dataclass(frozen=True)
class NotAPlan(Diagnostic):
    code: ClassVar[str] = "PWC0601"
    title: ClassVar[str] = "{path} is not a plan"
    have: ClassVar[str] = "{found}"
    need: ClassVar[str] = "a plan.bin that pwc compile wrote"
    hint: ClassVar[str] = "check the path, or write a plan: pwc compile model.py -o plan.bin"
    path: str
    found: str


@dataclass(frozen=True)
class DamagedPlan(Diagnostic):
    code: ClassVar[str] = "PWC0602"
    title: ClassVar[str] = "the plan {path} is damaged"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "every member with the digest that the manifest states"
    hint: ClassVar[str] = "copy it again, or compile it again"
    path: str
    problem: str


@dataclass(frozen=True)
class PlanVersion(Diagnostic):
    code: ClassVar[str] = "PWC0603"
    exit: ClassVar[Exit] = Exit.VERSION
    title: ClassVar[str] = "the plan {path} is of format {have_version}"
    have: ClassVar[str] = "format {have_version}, written by {writer}"
    need: ClassVar[str] = "format {need_version}: all that this version reads"
    hint: ClassVar[str] = "upgrade pathways-mpmd, or compile the plan again with this version"
    path: str
    have_version: int
    need_version: int
    writer: str


@dataclass(frozen=True)
class DoesNotFit(Diagnostic):
    code: ClassVar[str] = "PWC0607"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the plan of {program} does not fit these machines"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "{advice}"
    program: str
    have_: str
    needs: str
    advice: str


@dataclass(frozen=True)
class UnsafePlan(Diagnostic):
    code: ClassVar[str] = "PWC0604"
    title: ClassVar[str] = "the plan {path} breaks a rule that keeps the process alive"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "change the program so that it keeps the rule, and compile it again"
    path: str
    problem: str
    rule: str


@dataclass(frozen=True)
class CallsBack(Diagnostic):
    code: ClassVar[str] = "PWC0608"
    title: ClassVar[str] = "the plan of {program} cannot be saved: {name} calls back to the host"
    have: ClassVar[str] = "a Python function of this process, which another process does not have"
    need: ClassVar[str] = "a plan that runs by itself"
    hint: ClassVar[str] = "call the program where it is defined, or take the callback out of it"
    name: str
    program: str


@dataclass(frozen=True)
class PlanTooLarge(Diagnostic):
    code: ClassVar[str] = "PWC0613"
    title: ClassVar[str] = "the plan {path} asks for too much: {amount} {what}"
    have: ClassVar[str] = "{amount} {what}"
    need: ClassVar[str] = "at most {most}"
    hint: ClassVar[str] = "a smaller program, or several programs; pwc inspect without --memory needs less"
    path: str
    what: str
    amount: str
    most: str


@dataclass(frozen=True)
class UnreadableModule(Diagnostic):
    code: ClassVar[str] = "PWC0609"
    title: ClassVar[str] = "{name} of the plan {path} cannot be read safely"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "get the plan again from where it was compiled, or compile it here"
    path: str
    name: str
    problem: str
    rule: str = "modules that a process of their own can read within its limits, as this one is to read them"


@dataclass(frozen=True)
class BadKey(Diagnostic):
    code: ClassVar[str] = "PWC0610"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the key {path} is not used"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a regular file of 32 bytes that belongs to you, and that only you can read and write (0600)"
    hint: ClassVar[str] = (
        "was it yours alone? chmod 600 it; else remove it: a new one is made, and what the old one signed is unsigned"
    )
    path: str
    problem: str


@dataclass(frozen=True)
class UnknownTarget(Diagnostic):
    code: ClassVar[str] = "PWC0611"
    title: ClassVar[str] = "{name} of the plan {path} calls {target}, which is not known on {platform}"
    have: ClassVar[str] = "a custom call of {target}"
    need: ClassVar[str] = "custom calls that JAX itself makes on {platform}, or that you allow"
    hint: ClassVar[str] = "register the function where the plan is loaded, and set PATHWAYS_CUSTOM_CALLS={target}"
    path: str
    name: str
    target: str
    platform: str


@dataclass(frozen=True)
class CannotVet(Diagnostic):
    code: ClassVar[str] = "PWC0612"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the plan {path} cannot be checked: no process could be started for it"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a process that reads what this user did not write before this one does"
    hint: ClassVar[str] = "compile the plan here, or see why {command} does not start"
    path: str
    problem: str
    command: str


@dataclass(frozen=True)
class DamagedArray(Diagnostic):
    code: ClassVar[str] = "PWC0615"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{name} cannot be read from {folder}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the folder as it was written, beside the file that names it"
    hint: ClassVar[str] = "copy and move a snapshot together with its folder; where it is damaged, go on from another"
    name: str
    folder: str
    problem: str


@dataclass(frozen=True)
class NoShardy(Diagnostic):
    code: ClassVar[str] = "PWC0125"
    exit: ClassVar[Exit] = Exit.VERSION
    title: ClassVar[str] = "this jaxlib has no MPMD dialect of Shardy's"
    have: ClassVar[str] = "jaxlib {version}: {problem}"
    need: ClassVar[str] = "a jaxlib with jaxlib._sdy_mpmd, as those of 0.10 to 0.12 from the package index are"
    hint: ClassVar[str] = "pip install --force-reinstall jaxlib=={version}; only programs in Shardy's form need it"
    version: str
    problem: str
