"""Defines the runtime's errors: wrong inputs, plans that do not fit, failed runs. `pwc explain` lists them."""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, JaxFailure, Where


class WrongInput(Diagnostic):
    code: ClassVar[str] = "PWC0501"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the argument {name} of {program} does not match"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "convert the argument, or compile the program for its shape and element type"
    name: str
    program: str
    have_: str
    rule: str


class WrongStructure(Diagnostic):
    code: ClassVar[str] = "PWC0502"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the arguments of {program} differ in structure from those that it was compiled for"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pwc inspect plan.bin shows the signature; to change the structure, compile the program again"
    program: str
    have_: str
    rule: str


class NotEnoughDevices(Diagnostic):
    code: ClassVar[str] = "PWC0503"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the plan {program} needs other devices than this machine has"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "compile for this machine: pwc compile --topology islands=...,devices=..."
    program: str
    have_: str
    needs: str


class ComputationFailed(Diagnostic):
    code: ClassVar[str] = "PWC0504"
    also: ClassVar[tuple[type[Exception], ...]] = (JaxFailure,)
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{computation} failed on {island}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "all computations that a result depends on complete without errors"
    hint: ClassVar[str] = "results that do not depend on it are valid; call the function with jax.jit alone to compare"
    computation: str
    island: str
    cause: str


class OutOfDeviceMemory(Diagnostic):
    code: ClassVar[str] = "PWC0937"
    also: ClassVar[tuple[type[Exception], ...]] = (JaxFailure,)
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{computation} ran out of memory on {island}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "memory for its arguments, results and temporaries, next to all other buffers"
    hint: ClassVar[str] = "use smaller shards, or --remat auto; pwc compile --analyze measures temporaries"
    computation: str
    island: str
    cause: str


_FULL = "RESOURCE_EXHAUSTED", "JaxRuntimeError: RESOURCE_EXHAUSTED"
"""PJRT status on all platforms. An error message starts with it if a device is out of memory."""


def failed_because(name: str, island: str, cause: str, where: Where | None = None) -> Diagnostic:
    """Returns the error of a computation or copy that failed on an island, classified by PJRT's message `cause`."""
    kind = OutOfDeviceMemory if cause.startswith(_FULL) else ComputationFailed
    return kind(computation=name, island=island, cause=cause, where=where)


class UsedAfterDonation(Diagnostic):
    code: ClassVar[str] = "PWC0207"
    also: ClassVar[tuple[type[Exception], ...]] = (RuntimeError, ValueError)
    title: ClassVar[str] = "{name} was donated and is used again"
    have: ClassVar[str] = "an array that was donated to {taker}{taken_at}"
    need: ClassVar[str] = "an array that no program may overwrite"
    hint: ClassVar[str] = "use the result that replaced it, or remove it from donate_argnums"
    name: str
    taker: str
    taken_at: str = ""


class UsedAfterDeletion(Diagnostic):
    code: ClassVar[str] = "PWC0217"
    also: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)
    title: ClassVar[str] = "{name} was deleted and is used again"
    have: ClassVar[str] = "an array whose memory was freed by .delete(){deleted_at}"
    need: ClassVar[str] = "an array that is not deleted"
    hint: ClassVar[str] = "delete it later; or keep copy.copy(x), which shares the memory and keeps it allocated"
    name: str
    deleted_at: str = ""


class GuardedTransfer(Diagnostic):
    code: ClassVar[str] = "PWC0210"
    title: ClassVar[str] = "a transfer guard forbids a copy of {name} of {program} from {source}"
    have: ClassVar[str] = "jax.transfer_guard of {level!r}"
    need: ClassVar[str] = "an argument on the slice where the program uses it, such as the result of a program"
    hint: ClassVar[str] = "with jax.transfer_guard('allow'): around the calls that may copy"
    name: str
    program: str
    source: str
    level: str


class NotANumber(Diagnostic):
    code: ClassVar[str] = "PWC0211"
    also: ClassVar[tuple[type[Exception], ...]] = (FloatingPointError,)
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{computation} on {island} produced NaN or infinity"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "finite numbers: {setting} is on"
    hint: ClassVar[str] = "no earlier computation produced any: check its operations, and the arguments"
    computation: str
    island: str
    have_: str
    setting: str


class NotAnArray(Diagnostic):
    code: ClassVar[str] = "PWC0505"
    title: ClassVar[str] = "{operation} is not possible on a result of a program"
    have: ClassVar[str] = "a pw.Array: a handle to a sharded buffer that may not be computed yet"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pass it to a pw.program as an argument, or convert it as `need` says"
    operation: str
    rule: str


class NeverFits(Diagnostic):
    code: ClassVar[str] = "PWC0506"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} needs more memory than {island} has"
    have: ClassVar[str] = "{limit} bytes on each device"
    need: ClassVar[str] = "{size} bytes on one device, {more} more than it has"
    hint: ClassVar[str] = "use smaller shards, or --remat auto; pwc inspect plan.bin --memory lists buffers"
    program: str
    island: str
    limit: str
    size: str
    more: str


class MemoryHeld(Diagnostic):
    code: ClassVar[str] = "PWC0507"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} would wait forever for memory of {island}"
    have: ClassVar[str] = "{free} of {limit} are free; arrays of {client} hold {held}; no run is in flight"
    need: ClassVar[str] = "{size} more on one device"
    hint: ClassVar[str] = "delete or donate arrays that you do not need; pw.status() lists them"
    program: str
    island: str
    free: str
    limit: str
    held: str
    client: str
    size: str


class Hang(Diagnostic):
    code: ClassVar[str] = "PWC0901"
    exit: ClassVar[Exit] = Exit.HANG
    title: ClassVar[str] = "no progress for {seconds} s, and no device computes: run {run} of {program} hangs"
    have: ClassVar[str] = "{calls}"
    need: ClassVar[str] = "every device of a gang reaches its collectives (client {client}; {others})"
    hint: ClassVar[str] = "its devices are lost: continue from a snapshot; PATHWAYS_HANG_TIMEOUT=0 waits forever"
    seconds: str
    program: str
    run: int
    client: str
    calls: str
    others: str


class PerhapsHang(Diagnostic):
    code: ClassVar[str] = "PWC0902"
    severity: ClassVar[str] = "warning"
    title: ClassVar[str] = "no progress for {seconds} s: run {run} of {program} may hang"
    have: ClassVar[str] = "{calls}"
    need: ClassVar[str] = "progress, or evidence that no device computes (client {client}; {others})"
    hint: ClassVar[str] = "a long computation is not a hang: nothing is stopped; this warning comes again later"
    seconds: str
    program: str
    run: int
    client: str
    calls: str
    others: str


class UnknownCallback(Diagnostic):
    code: ClassVar[str] = "PWC0510"
    title: ClassVar[str] = "{computation} needs a host callback that this process does not have"
    have: ClassVar[str] = "a dump or plan of another process, or a dump whose program was deleted"
    need: ClassVar[str] = "the process in which the program was traced"
    hint: ClassVar[str] = "compile the program from its source, and call it in the same process"
    computation: str


class CalledInside(Diagnostic):
    code: ClassVar[str] = "PWC0511"
    title: ClassVar[str] = "{program} was called inside a host callback of {computation}"
    have: ClassVar[str] = "a run that would wait for devices, which wait for the callback"
    need: ClassVar[str] = "host callbacks that call no program"
    hint: ClassVar[str] = "return the value from the program, and call the other program with it"
    program: str
    computation: str


class DeviceLost(Diagnostic):
    code: ClassVar[str] = "PWC0512"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "device {device} of {island} was lost: {reason}"
    have: ClassVar[str] = "an array with a shard on the lost device"
    need: ClassVar[str] = "all shards of the array"
    hint: ClassVar[str] = "continue from the last snapshot (pw.restore): programs move to a complete island"
    island: str
    device: int
    reason: str


class CannotReplace(Diagnostic):
    code: ClassVar[str] = "PWC0513"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} cannot be placed again after a device of {island} was lost"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "{advice}"
    program: str
    island: str
    have_: str
    needs: str
    advice: str


class NotYours(Diagnostic):
    code: ClassVar[str] = "PWC0508"
    title: ClassVar[str] = "{name} belongs to another client"
    have: ClassVar[str] = "an array of {owner}, used by {client}"
    need: ClassVar[str] = "arrays of the client that uses them"
    hint: ClassVar[str] = "enter that client here too (with client: ...), or pass a copy: np.asarray(x)"
    name: str
    owner: str
    client: str


class ClientClosed(Diagnostic):
    code: ClassVar[str] = "PWC0509"
    title: ClassVar[str] = "the client {client} is closed"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a client that is open: closing it frees its arrays"
    hint: ClassVar[str] = "read results (np.asarray) before the client's with block ends"
    client: str
    have_: str


CLUSTER_CLOSED = "a cluster whose with block has ended, or is ending"
"""The line `have` of `ClientClosed` where the whole cluster was closed."""


class ClientSuspended(Diagnostic):
    code: ClassVar[str] = "PWC0515"
    title: ClassVar[str] = "the client {client} is suspended"
    have: ClassVar[str] = "arrays that were moved out of device memory"
    need: ClassVar[str] = "a client that is not suspended"
    hint: ClassVar[str] = "client.resume() moves them back"
    client: str


class TooMuchToFetch(Diagnostic):
    code: ClassVar[str] = "PWC0516"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "reading {name} would copy {size} from {island} to the host"
    have: ClassVar[str] = "a limit of {limit} for each array"
    need: ClassVar[str] = "an array that fits into the memory of this process"
    hint: ClassVar[str] = "reduce or slice it in a program, or raise the limit: {how}"
    name: str
    size: str
    island: str
    limit: str
    how: str = "PATHWAYS_FETCH_LIMIT=64GiB, pwc run --fetch-limit 64GiB"


class RunCancelled(Diagnostic):
    code: ClassVar[str] = "PWC0518"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "run {run} of {program} was cancelled"
    have: ClassVar[str] = "a result that will not be computed"
    need: ClassVar[str] = "a run that completes"
    hint: ClassVar[str] = "call the program again"
    program: str
    run: int


class Forked(Diagnostic):
    code: ClassVar[str] = "PWC0520"
    title: ClassVar[str] = "this process was forked from a process that has devices"
    have: ClassVar[str] = "a copy of a process without its devices and threads"
    need: ClassVar[str] = "a process that creates its own devices"
    hint: ClassVar[str] = "use multiprocessing.get_context('spawn'), or fork before the first program is called"


class StillRunning(Diagnostic):
    code: ClassVar[str] = "PWC0519"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{name} was not computed within {seconds} s"
    have: ClassVar[str] = "a result of {computation}, which is still running"
    need: ClassVar[str] = "more time"
    hint: ClassVar[str] = "wait again, since the run continues; or x.cancel(), which stops a loop that depends on data"
    name: str
    seconds: str
    computation: str


class WrongPlatform(Diagnostic):
    code: ClassVar[str] = "PWC0605"
    exit: ClassVar[Exit] = Exit.VERSION
    title: ClassVar[str] = "the plan {program} is for the platform {plan_platform}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "devices of platform {plan_platform}"
    hint: ClassVar[str] = "compile it again for this machine"
    program: str
    plan_platform: str
    have_: str


class SharedCache(Diagnostic):
    code: ClassVar[str] = "PWC0708"
    severity: ClassVar[str] = "warning"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the cache {folder} is not used, because other users could change its files"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a folder that you own, and no other user can write to"
    hint: ClassVar[str] = "chmod go-w {folder}, or set PATHWAYS_CACHE to another folder"
    folder: str
    problem: str


class SnapshotMissing(Diagnostic):
    code: ClassVar[str] = "PWC0517"
    title: ClassVar[str] = "{name} cannot be read back after it was suspended"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the file that suspend() wrote, until resume() has read it"
    hint: ClassVar[str] = "suspend into a folder that no job cleans; restore the values from your last pw.save"
    name: str
    problem: str


class RefusedByXla(Diagnostic):
    code: ClassVar[str] = "PWC0614"
    title: ClassVar[str] = "XLA cannot compile {computation}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "a computation that XLA compiles for {devices} {kind} devices"
    hint: ClassVar[str] = "run the function with jax.jit alone: XLA raises the same error"
    computation: str
    cause: str
    devices: int
    kind: str
