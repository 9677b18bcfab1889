"""Defines the errors of the dialect layer: invalid IR, topology files, plan files, keys and settings. All layers raise
them, and `pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class InvalidIR(Diagnostic):
    code: ClassVar[str] = "PWC0701"
    title: ClassVar[str] = "the IR is invalid: {op} {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "find the op in the dump of the phase before, or run again with --print-ir-after-all"
    op: str
    problem: str
    have_: str
    rule: str


class UnparsableIR(Diagnostic):
    code: ClassVar[str] = "PWC0702"
    title: ClassVar[str] = "{name} is not MLIR that pwc can read"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "the text of a module with pw ops, as --dump-phases-to writes it"
    hint: ClassVar[str] = "write dumps with debug info; after editing attributes by hand, check the file with pwc opt"
    name: str
    message: str


class TooDeep(Diagnostic):
    code: ClassVar[str] = "PWC0709"
    title: ClassVar[str] = "{name} is nested too deeply"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "at most {most} nested brackets, regions or aliases"
    hint: ClassVar[str] = "write the dump again: pwc compile model.py --dump-phases-to DIR"
    name: str
    problem: str
    most: int


class WrongPhase(Diagnostic):
    code: ClassVar[str] = "PWC0703"
    title: ClassVar[str] = "{what} needs IR of phase {need_phase}"
    have: ClassVar[str] = "IR of phase {have_phase}"
    need: ClassVar[str] = "phase {need_phase}"
    hint: ClassVar[str] = "pwc compile runs the phases in between, from a source or an earlier dump"
    what: str
    have_phase: str
    need_phase: str


class BadTopology(Diagnostic):
    code: ClassVar[str] = "PWC0704"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the topology {source} cannot be read"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "islands=N,hosts=N,devices=N[,kind=K][,memory=BYTES], or a TOML file with [[island]] tables"
    hint: ClassVar[str] = (
        "islands=2,devices=4 is two islands, each of one host with four devices; docs/topologies.md lists all fields"
    )
    source: str
    problem: str


class BadChoice(Diagnostic):
    code: ClassVar[str] = "PWC0115"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{source} does not state how to split a loss"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = (
        "a TOML file with stages, data, model, microbatches, schedule, remat, islands, cuts and param_specs"
    )
    hint: ClassVar[str] = "`pwc search model.py:loss --topology FILE --batch N -o choice.toml` writes such a file"
    source: str
    problem: str


class BadArguments(Explained):
    code: ClassVar[str] = "PWC0104"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError, ValueError)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{problem}"
    problem: str


class BadSetting(Diagnostic):
    code: ClassVar[str] = "PWC0707"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{source} has an invalid value"
    have: ClassVar[str] = "{value}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{example}"
    source: str
    value: str
    rule: str
    example: str


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
    advice: str = "create the folder first, or choose another path"


class NoThread(Diagnostic):
    code: ClassVar[str] = "PWC0521"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the thread {thread} cannot be started"
    have: ClassVar[str] = "{running} Python threads are running, and the system refuses another"
    need: ClassVar[str] = "a few threads for each host and client"
    hint: ClassVar[str] = "ulimit -u, and the pids limit of the container, show how many threads are allowed"
    thread: str
    running: int


class NotAPlan(Diagnostic):
    code: ClassVar[str] = "PWC0601"
    title: ClassVar[str] = "{path} is not a plan"
    have: ClassVar[str] = "{found}"
    need: ClassVar[str] = "a plan that pwc compile wrote"
    hint: ClassVar[str] = "check the path, or write a plan: pwc compile model.py -o plan.bin"
    path: str
    found: str


class DamagedPlan(Diagnostic):
    code: ClassVar[str] = "PWC0602"
    title: ClassVar[str] = "the plan {path} is damaged"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "every member of the file matches its digest in the manifest"
    hint: ClassVar[str] = "copy the file again, or compile the plan again"
    path: str
    problem: str


class PlanVersion(Diagnostic):
    code: ClassVar[str] = "PWC0603"
    exit: ClassVar[Exit] = Exit.VERSION
    title: ClassVar[str] = "the plan {path} has format {have_version}"
    have: ClassVar[str] = "format {have_version}, written by {writer}"
    need: ClassVar[str] = "format {need_version}, the only one that this version reads"
    hint: ClassVar[str] = "upgrade pathways-mpmd, or compile the plan again with this version"
    path: str
    have_version: int
    need_version: int
    writer: str


class DoesNotFit(Diagnostic):
    code: ClassVar[str] = "PWC0607"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the plan of {program} does not fit this topology"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "{advice}"
    program: str
    have_: str
    needs: str
    advice: str


class UnsafePlan(Diagnostic):
    code: ClassVar[str] = "PWC0604"
    title: ClassVar[str] = "running the plan {path} could end the process"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "change the program so that it keeps the rule, and compile it again"
    path: str
    problem: str
    rule: str


class CallsBack(Diagnostic):
    code: ClassVar[str] = "PWC0608"
    title: ClassVar[str] = "the plan of {program} cannot be saved: {name} has a host callback"
    have: ClassVar[str] = "a Python function that exists in this process only"
    need: ClassVar[str] = "a plan without host callbacks"
    hint: ClassVar[str] = "call the program in the process that defines it, or remove the callback"
    name: str
    program: str


class PlanTooLarge(Diagnostic):
    code: ClassVar[str] = "PWC0613"
    title: ClassVar[str] = "the plan {path} is too large: {amount} {what}"
    have: ClassVar[str] = "{amount} {what}"
    need: ClassVar[str] = "at most {most}"
    hint: ClassVar[str] = "use a smaller program, or several programs; pwc inspect without --memory needs less"
    path: str
    what: str
    amount: str
    most: str


class UnreadableModule(Diagnostic):
    code: ClassVar[str] = "PWC0609"
    title: ClassVar[str] = "{name} of the plan {path} cannot be read safely"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "copy the plan again from its origin, or compile it here"
    path: str
    name: str
    problem: str
    rule: str = "a module that a separate process reads within its limits"


class BadKey(Diagnostic):
    code: ClassVar[str] = "PWC0610"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the key {path} is not used"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a regular file of 32 bytes that you own, and only you can read and write (0600)"
    hint: ClassVar[str] = (
        "if nobody else could change it, chmod 600; if not, delete it: a new key is made, and plans signed with "
        "the old one count as unsigned"
    )
    path: str
    problem: str


class UnknownTarget(Diagnostic):
    code: ClassVar[str] = "PWC0611"
    title: ClassVar[str] = "{name} of the plan {path} calls {target}, which is unknown on {platform}"
    have: ClassVar[str] = "a custom call to {target}"
    need: ClassVar[str] = "custom calls that JAX itself emits for {platform}, or that you allow"
    hint: ClassVar[str] = (
        "register the function in the process that loads the plan, and set PATHWAYS_CUSTOM_CALLS={target}"
    )
    path: str
    name: str
    target: str
    platform: str


class CannotVet(Diagnostic):
    code: ClassVar[str] = "PWC0612"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the plan {path} cannot be checked: no process could be started for it"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a separate process that checks plans of other users"
    hint: ClassVar[str] = "compile the plan here, or find out why {command} does not start"
    path: str
    problem: str
    command: str


class DamagedArray(Diagnostic):
    code: ClassVar[str] = "PWC0615"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{name} cannot be read from {folder}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the folder as it was written, next to the file that names it"
    hint: ClassVar[str] = "copy or move a snapshot together with its folder; if it is damaged, use another snapshot"
    name: str
    folder: str
    problem: str


class NoShardy(Diagnostic):
    code: ClassVar[str] = "PWC0125"
    exit: ClassVar[Exit] = Exit.VERSION
    title: ClassVar[str] = "this jaxlib does not contain Shardy's MPMD dialect"
    have: ClassVar[str] = "jaxlib {version}: {problem}"
    need: ClassVar[str] = "a jaxlib with the module jaxlib._sdy_mpmd: the wheels 0.10 to 0.12 on PyPI have it"
    hint: ClassVar[str] = (
        "pip install --force-reinstall jaxlib=={version}; only programs in Shardy's form need the dialect"
    )
    version: str
    problem: str
