"""Defines the errors of the compiler. Each states what is wrong in the user's program, mesh, placement or options, and
what to do about it. `pwc explain` lists them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained
from pathways.dialect.errors import BadArguments, CannotWrite


@dataclass(frozen=True)
class OutsideProgram(Diagnostic):
    code: ClassVar[str] = "PWC0101"
    title: ClassVar[str] = "a virtual device cannot compute by itself"
    have: ClassVar[str] = "a use of {device} outside of a program (JAX asked it for {asked!r})"
    need: ClassVar[str] = "a function marked @pw.program, which compiles what it calls and runs it on real devices"
    hint: ClassVar[str] = "call it inside a @pw.program, or make a one-node program of it: pw.program(f)(x)"
    device: str
    asked: str


@dataclass(frozen=True)
class Unsupported(Explained):
    code: ClassVar[str] = "PWC0102"
    also: ClassVar[tuple[type[Exception], ...]] = (NotImplementedError, TypeError)
    title: ClassVar[str] = "{what} is not supported in a program"
    what: str


@dataclass(frozen=True)
class NotTraceable(Diagnostic):
    code: ClassVar[str] = "PWC0103"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    title: ClassVar[str] = "program {program} cannot be traced: {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a function of arrays that returns arrays: pytrees in, pytrees out"
    hint: ClassVar[str] = "{advice}"
    program: str
    problem: str
    have_: str
    advice: str


@dataclass(frozen=True)
class TransformedProgram(Diagnostic):
    code: ClassVar[str] = "PWC0106"
    title: ClassVar[str] = "{transformation} around program {program}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "transformations inside of programs; around them only jax.eval_shape and jax.make_jaxpr"
    hint: ClassVar[str] = "{advice}"
    program: str
    transformation: str
    have_: str
    advice: str


@dataclass(frozen=True)
class EndlessCalls(Diagnostic):
    code: ClassVar[str] = "PWC0107"
    also: ClassVar[tuple[type[Exception], ...]] = (RecursionError,)
    title: ClassVar[str] = "program {program} calls itself without end"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "calls that end while the program is traced: whatever they depend on must be known then"
    hint: ClassVar[str] = "count down a static argument or a shape, or use lax.while_loop or lax.scan"
    program: str
    have_: str


@dataclass(frozen=True)
class BadSlice(Explained):
    code: ClassVar[str] = "PWC0201"
    title: ClassVar[str] = "the mesh does not fit the slice {slice}"
    slice: str


@dataclass(frozen=True)
class RealDevices(Diagnostic):
    code: ClassVar[str] = "PWC0202"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{what} names real devices inside a program"
    have: ClassVar[str] = "devices {devices}"
    need: ClassVar[str] = "virtual devices: slice.devices or slice.mesh(...)"
    hint: ClassVar[str] = (
        "a mesh of pw.make_virtual_device_set().add_slice(devices=n); if the line is in a library, "
        "pw.program(meshes={{mesh: slice}}) says which slice its mesh stands for"
    )
    what: str
    devices: str


@dataclass(frozen=True)
class SeveralSlices(Diagnostic):
    code: ClassVar[str] = "PWC0204"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{what} names devices of several slices"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "one computation runs on devices of one slice"
    hint: ClassVar[str] = "use one slice, or split it and move the value with jax.device_put(x, sharding)"
    what: str
    have_: str


@dataclass(frozen=True)
class NotDivisible(Diagnostic):
    code: ClassVar[str] = "PWC0203"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{value} cannot be split evenly"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "every dimension a multiple of the number of its parts"
    hint: ClassVar[str] = "pad the dimension, or leave it unsharded"
    value: str
    have_: str


@dataclass(frozen=True)
class UnknownAxis(Explained):
    code: ClassVar[str] = "PWC0205"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{axis} is not an axis of the mesh"
    axis: str


@dataclass(frozen=True)
class AmbiguousSharding(Diagnostic):
    code: ClassVar[str] = "PWC0206"
    title: ClassVar[str] = "the sharding of a result is not determined by its operands"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "on an explicit mesh: operands whose shardings leave one choice, or the choice itself"
    hint: ClassVar[str] = "{advice}"
    have_: str
    advice: str


@dataclass(frozen=True)
class TooFewDimensions(Diagnostic):
    code: ClassVar[str] = "PWC0209"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{value} has fewer dimensions than its sharding"
    have: ClassVar[str] = "{rank} dimensions, sharded as {spec}"
    need: ClassVar[str] = "at least {least}"
    hint: ClassVar[str] = (
        "shorten the PartitionSpec, P() for a number; a list is a tree of numbers: np.array makes it one"
    )
    value: str
    rank: int
    least: int
    spec: str


@dataclass(frozen=True)
class SliceTooLarge(Diagnostic):
    code: ClassVar[str] = "PWC0301"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the slices do not fit the topology"
    have: ClassVar[str] = "{topology}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "--topology with larger or more islands or more memory, or smaller slices"
    topology: str
    needs: str


@dataclass(frozen=True)
class OutOfMemory(Diagnostic):
    code: ClassVar[str] = "PWC0302"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the program does not fit the memory of {island}"
    have: ClassVar[str] = "{memory} bytes a device"
    need: ClassVar[str] = "{peak} bytes on one device {at}, {over} too many:\n{owners}"
    hint: ClassVar[str] = "{advice}"
    island: str
    memory: str
    peak: str
    over: str
    at: str
    owners: str
    activations: int = 0
    advice: str = "more devices a slice, smaller batches, donate_argnums, or islands with more memory"


@dataclass(frozen=True)
class ScheduleCycle(Diagnostic):
    code: ClassVar[str] = "PWC0402"
    title: ClassVar[str] = "the schedule {schedule} cannot finish: {count} actions wait for each other in a circle"
    have: ClassVar[str] = "{cycle}"
    need: ClassVar[str] = "an order in which every action comes after all that it needs"
    hint: ClassVar[str] = "{advice}"
    schedule: str
    count: int
    cycle: str
    advice: str


@dataclass(frozen=True)
class BadTable(Diagnostic):
    code: ClassVar[str] = "PWC0403"
    title: ClassVar[str] = "{path} is no schedule of this program"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "--schedule 1f1b --emit-schedule s.csv writes one to start from"
    path: str
    have_: str
    rule: str


@dataclass(frozen=True)
class UnsuitableSchedule(Explained):
    code: ClassVar[str] = "PWC0404"
    title: ClassVar[str] = "the schedule {schedule} does not suit this pipeline"
    schedule: str


@dataclass(frozen=True)
class UnknownSchedule(Diagnostic):
    code: ClassVar[str] = "PWC0405"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is no schedule {schedule}"
    have: ClassVar[str] = "{schedule}"
    need: ClassVar[str] = "a name, or a table as FILE.csv"
    hint: ClassVar[str] = "known: {known}"
    schedule: str
    known: str


@dataclass(frozen=True)
class NoPipeline(Diagnostic):
    code: ClassVar[str] = "PWC0406"
    title: ClassVar[str] = "there is no schedule to write to {path}"
    have: ClassVar[str] = "a program without a loop over microbatches"
    need: ClassVar[str] = "the same placed calls once for each microbatch, by lax.scan or in a Python loop"
    hint: ClassVar[str] = "leave --emit-schedule out, or split the batch into microbatches"
    path: str


@dataclass(frozen=True)
class BadPlacement(Diagnostic):
    code: ClassVar[str] = "PWC0305"
    title: ClassVar[str] = "placement {policy} {did}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "look at what place(graph, topology) returns; the graph is not at fault"
    policy: str
    have_: str
    rule: str
    did: str = "returned something illegal"


@dataclass(frozen=True)
class BadPolicy(Diagnostic):
    code: ClassVar[str] = "PWC0307"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the placement {policy} cannot be used"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{known}, or FILE.py:NAME of a function place(graph, topology)"
    hint: ClassVar[str] = "docs/writing-a-placement-pass.md shows one of 20 lines"
    policy: str
    have_: str
    known: str


@dataclass(frozen=True)
class BadLayout(Diagnostic):
    code: ClassVar[str] = "PWC0308"
    title: ClassVar[str] = "the layout {layout} does not fit the program"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = (
        "one item a slice in the order of first calls, FUNCTION*COUNT for equal ones, | between islands"
    )
    layout: str
    have_: str
    rule: str


@dataclass(frozen=True)
class NotPinned(Diagnostic):
    code: ClassVar[str] = "PWC0306"
    title: ClassVar[str] = "placement pinned leaves nothing to choose, but {slices} name no island"
    have: ClassVar[str] = "add_slice(...) without island="
    need: ClassVar[str] = "island= for every slice"
    hint: ClassVar[str] = "add_slice(..., island='island0'), or --placement spread"
    slices: str


@dataclass(frozen=True)
class PassRaised(Diagnostic):
    code: ClassVar[str] = "PWC0706"
    title: ClassVar[str] = "the pass {name} raised {error}"
    have: ClassVar[str] = "an exception that is no PathwaysError"
    need: ClassVar[str] = "a pass that changes the program or leaves it alone; what it refuses is a coded error"
    hint: ClassVar[str] = "the IR that it got is in the reproducer; pwc opt runs the pass on it again"
    name: str
    error: str


@dataclass(frozen=True)
class PassBroke(Diagnostic):
    code: ClassVar[str] = "PWC0710"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the pass {name} made a program that breaks a rule: a mistake of this compiler, not yours"
    have: ClassVar[str] = "{op} {problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "please file a bug, with the reproducer that is named below, or with the program"
    name: str
    op: str
    problem: str
    rule: str


@dataclass(frozen=True)
class UnknownPass(Diagnostic):
    code: ClassVar[str] = "PWC0705"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "known: {known}"
    problem: str
    have_: str
    known: str
    rule: str = "passes separated by commas, options in braces: place{policy=spread},insert-transfers"


@dataclass(frozen=True)
class PassNeeded(Diagnostic):
    code: ClassVar[str] = "PWC0711"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "phase {phase} is not reached without the pass {name}"
    have: ClassVar[str] = "IR of phase {have_phase}, and {name} left out"
    need: ClassVar[str] = "all passes that lead from phase to phase, or others in place of them, up to phase {upto}"
    hint: ClassVar[str] = "leave {name} in, or stop before it: --compile-to {before}; pwc passes shows all phases"
    name: str
    phase: str
    have_phase: str
    upto: str
    before: str


OF_OPTIONS = (
    BadArguments,
    BadTable,
    ScheduleCycle,
    UnsuitableSchedule,
    UnknownSchedule,
    NoPipeline,
    BadPolicy,
    BadLayout,
    NotPinned,
    UnknownPass,
    PassNeeded,
    CannotWrite,
)
"""Errors that a pass raises because of its options, not because of the program."""
