"""Defines the errors of the compiler. Each states what is wrong in the user's program, mesh, placement or options, and
what to do about it. `pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained
from pathways.dialect.errors import BadArguments, CannotWrite


class OutsideProgram(Diagnostic):
    code: ClassVar[str] = "PWC0101"
    title: ClassVar[str] = "a virtual device cannot compute outside of a program"
    have: ClassVar[str] = "{device} is used outside of a program (JAX requested its {requested!r})"
    need: ClassVar[str] = "a function marked @pw.program: the program is compiled and runs on real devices"
    hint: ClassVar[str] = "call it inside a @pw.program, or make it a program of its own: pw.program(f)(x)"
    device: str
    requested: str


class Unsupported(Explained):
    code: ClassVar[str] = "PWC0102"
    also: ClassVar[tuple[type[Exception], ...]] = (NotImplementedError, TypeError)
    title: ClassVar[str] = "{what} is not supported in a program"
    what: str


class NotTraceable(Diagnostic):
    code: ClassVar[str] = "PWC0103"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    title: ClassVar[str] = "program {program} cannot be traced: {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a function whose arguments and results are pytrees of arrays"
    hint: ClassVar[str] = "{advice}"
    program: str
    problem: str
    have_: str
    advice: str


class TransformedProgram(Diagnostic):
    code: ClassVar[str] = "PWC0106"
    title: ClassVar[str] = "{transformation} around program {program}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = (
        "transformations inside the program; around a program only jax.eval_shape and jax.make_jaxpr work"
    )
    hint: ClassVar[str] = "{advice}"
    program: str
    transformation: str
    have_: str
    advice: str


class EndlessCalls(Diagnostic):
    code: ClassVar[str] = "PWC0107"
    also: ClassVar[tuple[type[Exception], ...]] = (RecursionError,)
    title: ClassVar[str] = "program {program} calls itself without a limit"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a recursion that terminates during tracing: its condition must be known at trace time"
    hint: ClassVar[str] = "count down a static argument or a shape, or use lax.while_loop or lax.scan"
    program: str
    have_: str


class BadSlice(Explained):
    code: ClassVar[str] = "PWC0201"
    title: ClassVar[str] = "the mesh does not match the slice {slice}"
    slice: str


class RealDevices(Diagnostic):
    code: ClassVar[str] = "PWC0202"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{what} names real devices inside a program"
    have: ClassVar[str] = "devices {devices}"
    need: ClassVar[str] = "virtual devices: slice.devices or slice.mesh(...)"
    hint: ClassVar[str] = (
        "use a mesh of pw.make_virtual_device_set().add_slice(devices=n); if the line is in a library, "
        "pw.program(meshes={{mesh: slice}}) states which slice its mesh stands for"
    )
    what: str
    devices: str


class SeveralSlices(Diagnostic):
    code: ClassVar[str] = "PWC0204"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{what} names devices of several slices"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "one slice for each computation"
    hint: ClassVar[str] = "use one slice, or split it and move the value with jax.device_put(x, sharding)"
    what: str
    have_: str


class NotDivisible(Diagnostic):
    code: ClassVar[str] = "PWC0203"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{value} cannot be split evenly"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "every dimension a multiple of the number of its shards"
    hint: ClassVar[str] = "pad the dimension, or leave it unsharded"
    value: str
    have_: str


class UnknownAxis(Explained):
    code: ClassVar[str] = "PWC0205"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{axis} is not an axis of the mesh"
    axis: str


class AmbiguousSharding(Diagnostic):
    code: ClassVar[str] = "PWC0206"
    title: ClassVar[str] = "the operands do not determine the sharding of a result"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = (
        "on an explicit mesh: operands whose shardings allow one result sharding only, or out_sharding="
    )
    hint: ClassVar[str] = "{advice}"
    have_: str
    advice: str


class TooFewDimensions(Diagnostic):
    code: ClassVar[str] = "PWC0209"
    also: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    title: ClassVar[str] = "{value} has fewer dimensions than its sharding"
    have: ClassVar[str] = "{rank} dimensions, sharded as {spec}"
    need: ClassVar[str] = "at least {least} dimensions"
    hint: ClassVar[str] = (
        "shorten the PartitionSpec: P() for a scalar; a list is a pytree of scalars: np.array makes it one array"
    )
    value: str
    rank: int
    least: int
    spec: str


class SliceTooLarge(Diagnostic):
    code: ClassVar[str] = "PWC0301"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the slices do not fit the topology"
    have: ClassVar[str] = "{topology}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "use a --topology with more or larger islands or more memory, or smaller slices"
    topology: str
    needs: str


class OutOfMemory(Diagnostic):
    code: ClassVar[str] = "PWC0302"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the program does not fit into the memory of {island}"
    have: ClassVar[str] = "{memory} bytes on each device"
    need: ClassVar[str] = "{peak} bytes on one device {at}, {over} too many:\n{owners}"
    hint: ClassVar[str] = "{advice}"
    island: str
    memory: str
    peak: str
    over: str
    at: str
    owners: str
    activations: int = 0
    advice: str = "use more devices per slice, smaller batches, donate_argnums, or islands with more memory"


class ScheduleCycle(Diagnostic):
    code: ClassVar[str] = "PWC0402"
    title: ClassVar[str] = "the schedule {schedule} cannot complete: {count} actions wait for each other"
    have: ClassVar[str] = "{cycle}"
    need: ClassVar[str] = "an order in which every action comes after the actions that it depends on"
    hint: ClassVar[str] = "{advice}"
    schedule: str
    count: int
    cycle: str
    advice: str


class BadTable(Diagnostic):
    code: ClassVar[str] = "PWC0403"
    title: ClassVar[str] = "{path} is not a schedule of this program"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "`pwc compile ... --schedule 1f1b --emit-schedule s.csv` writes a table that you can edit"
    path: str
    have_: str
    rule: str


class UnsuitableSchedule(Explained):
    code: ClassVar[str] = "PWC0404"
    title: ClassVar[str] = "the schedule {schedule} cannot be used for this pipeline"
    schedule: str


class UnknownSchedule(Diagnostic):
    code: ClassVar[str] = "PWC0405"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is no schedule {schedule}"
    have: ClassVar[str] = "{schedule}"
    need: ClassVar[str] = "the name of a schedule, or a table FILE.csv"
    hint: ClassVar[str] = "known: {known}"
    schedule: str
    known: str


class NoPipeline(Diagnostic):
    code: ClassVar[str] = "PWC0406"
    title: ClassVar[str] = "there is no schedule that could be written to {path}"
    have: ClassVar[str] = "a program without a loop over microbatches"
    need: ClassVar[str] = "the same placed calls for each microbatch, in a lax.scan or a Python loop"
    hint: ClassVar[str] = "remove --emit-schedule, or split the batch into microbatches"
    path: str


class BadPlacement(Diagnostic):
    code: ClassVar[str] = "PWC0305"
    title: ClassVar[str] = "placement {policy} {did}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "correct the value that place(graph, topology) returns"
    policy: str
    have_: str
    rule: str
    did: str = "returned an invalid placement"


class BadPolicy(Diagnostic):
    code: ClassVar[str] = "PWC0307"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the placement {policy} cannot be used"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{known}, or FILE.py:NAME of a function place(graph, topology)"
    hint: ClassVar[str] = "docs/writing-a-placement-pass.md contains an example of 20 lines"
    policy: str
    have_: str
    known: str


class BadLayout(Diagnostic):
    code: ClassVar[str] = "PWC0308"
    title: ClassVar[str] = "the layout {layout} does not match the program"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = (
        "one item per slice in the order of first calls; FUNCTION*COUNT for equal slices; | separates islands"
    )
    layout: str
    have_: str
    rule: str


class NotPinned(Diagnostic):
    code: ClassVar[str] = "PWC0306"
    title: ClassVar[str] = "placement `pinned` chooses no islands, but {slices} name none"
    have: ClassVar[str] = "add_slice(...) without island="
    need: ClassVar[str] = "add_slice(..., island=...) for every slice"
    hint: ClassVar[str] = "add_slice(..., island='island0'), or --placement spread"
    slices: str


class OtherMachines(Diagnostic):
    code: ClassVar[str] = "PWC0309"
    title: ClassVar[str] = "{program} cannot be simulated on these machines"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "compile the program for this topology, or use the names that pwc inspect shows"
    program: str
    have_: str
    rule: str


class PassRaised(Diagnostic):
    code: ClassVar[str] = "PWC0706"
    title: ClassVar[str] = "the pass {name} raised {error}"
    have: ClassVar[str] = "an exception that is not a PathwaysError"
    need: ClassVar[str] = "a pass that raises coded errors only"
    hint: ClassVar[str] = "the reproducer contains the input of the pass; pwc opt runs the pass on it again"
    name: str
    error: str


class PassBroke(Diagnostic):
    code: ClassVar[str] = "PWC0710"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = (
        "the pass {name} produced a program that breaks a rule: a bug of this compiler, not of your program"
    )
    have: ClassVar[str] = "{op} {problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "please report it, with the reproducer named below or with the program"
    name: str
    op: str
    problem: str
    rule: str


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
    rule: str = "passes separated by commas, with options in braces: place{policy=spread},insert-transfers"


class PassNeeded(Diagnostic):
    code: ClassVar[str] = "PWC0711"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "phase {phase} is not reached without the pass {name}"
    have: ClassVar[str] = "IR of phase {have_phase}, without {name}"
    need: ClassVar[str] = "all passes up to phase {upto}, or others that replace them"
    hint: ClassVar[str] = "keep {name}, or stop before it: --compile-to {before}; pwc passes shows all phases"
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
