"""Defines the runtime's errors: wrong inputs, plans that do not fit, failed runs. `pwc explain` lists them."""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, JaxFailure, Where


@dataclass(frozen=True)
class WrongInput(Diagnostic):
    code: ClassVar[str] = "PWC0501"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the argument {name} of {program} does not fit"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "convert the argument, or compile the program for it"
    name: str
    program: str
    have_: str
    rule: str


@dataclass(frozen=True)
class WrongStructure(Diagnostic):
    code: ClassVar[str] = "PWC0502"
    also: ClassVar[tuple[type[Exception], ...]] = (TypeError,)
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the arguments of {program} have another structure than it was compiled for"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pwc inspect plan.bin shows the signature; call the program itself to compile it again"
    program: str
    have_: str
    rule: str


@dataclass(frozen=True)
class NotEnoughDevices(Diagnostic):
    code: ClassVar[str] = "PWC0503"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the plan {program} does not fit this machine"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "compile for this machine: pwc compile --topology islands=...,devices=..."
    program: str
    have_: str
    needs: str


@dataclass(frozen=True)
class ComputationFailed(Diagnostic):
    code: ClassVar[str] = "PWC0504"
    also: ClassVar[tuple[type[Exception], ...]] = (JaxFailure,)
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{computation} failed on {island}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "every computation that a result depends on to succeed"
    hint: ClassVar[str] = "results that do not depend on it are good; pwc run --reference runs step by step"
    computation: str
    island: str
    cause: str


@dataclass(frozen=True)
class OutOfDeviceMemory(Diagnostic):
    code: ClassVar[str] = "PWC0937"
    also: ClassVar[tuple[type[Exception], ...]] = (JaxFailure,)
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{computation} ran out of memory on {island}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "room for its arguments, results and temporaries, beside all else that uses the device"
    hint: ClassVar[str] = "smaller shards, or --remat auto; pwc compile --analyze measures temporaries"
    computation: str
    island: str
    cause: str


_FULL = "RESOURCE_EXHAUSTED", "JaxRuntimeError: RESOURCE_EXHAUSTED"
"""PJRT status on all platforms. An error message starts with it if a device is out of memory."""


def failed_because(name: str, island: str, cause: str, where: Where | None = None) -> Diagnostic:
    """Returns the error of a computation or copy that failed on an island, classified by PJRT's message `cause`."""
    kind = OutOfDeviceMemory if cause.startswith(_FULL) else ComputationFailed
    return kind(computation=name, island=island, cause=cause, where=where)


@dataclass(frozen=True)
class UsedAfterDonation(Diagnostic):
    code: ClassVar[str] = "PWC0207"
    also: ClassVar[tuple[type[Exception], ...]] = (RuntimeError, ValueError)
    title: ClassVar[str] = "{name} was given away and is used again"
    have: ClassVar[str] = "an array that was donated to {taker}{taken_at}"
    need: ClassVar[str] = "an array that nobody overwrites"
    hint: ClassVar[str] = "use what the program returned in its place, or leave it out of donate_argnums"
    name: str
    taker: str
    taken_at: str = ""


@dataclass(frozen=True)
class UsedAfterDeletion(Diagnostic):
    code: ClassVar[str] = "PWC0217"
    also: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)
    title: ClassVar[str] = "{name} was deleted and is used again"
    have: ClassVar[str] = "an array whose memory was given back by .delete(){deleted_at}"
    need: ClassVar[str] = "an array that is there"
    hint: ClassVar[str] = "delete it later, or copy.copy(x) it before: a copy costs nothing, and keeps the memory"
    name: str
    deleted_at: str = ""


@dataclass(frozen=True)
class GuardedTransfer(Diagnostic):
    code: ClassVar[str] = "PWC0210"
    title: ClassVar[str] = "the argument {name} of {program} would be copied from {source}"
    have: ClassVar[str] = "jax.transfer_guard of {level!r}"
    need: ClassVar[str] = "an argument that is where the program uses it: the result of a program, on the same slice"
    hint: ClassVar[str] = "with jax.transfer_guard('allow') around what may be copied"
    name: str
    program: str
    source: str
    level: str


@dataclass(frozen=True)
class NotANumber(Diagnostic):
    code: ClassVar[str] = "PWC0211"
    also: ClassVar[tuple[type[Exception], ...]] = (FloatingPointError,)
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{computation} on {island} made what is not a number"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "numbers: {setting} is on"
    hint: ClassVar[str] = "no computation before it made any: look at its operations, and at the program's arguments"
    computation: str
    island: str
    have_: str
    setting: str


@dataclass(frozen=True)
class NotAnArray(Diagnostic):
    code: ClassVar[str] = "PWC0505"
    title: ClassVar[str] = "{operation} on a result of a program"
    have: ClassVar[str] = "a pw.Array: a handle on a sharded buffer that may not be computed yet"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pass it to a pw.program as an argument, or convert it as `need` says"
    operation: str
    rule: str


@dataclass(frozen=True)
class NeverFits(Diagnostic):
    code: ClassVar[str] = "PWC0506"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} can never run on {island}"
    have: ClassVar[str] = "{limit} bytes a device"
    need: ClassVar[str] = "{size} bytes on one device, {more} too many"
    hint: ClassVar[str] = "smaller shards, or --remat auto; pwc inspect plan.bin --memory shows its buffers"
    program: str
    island: str
    limit: str
    size: str
    more: str


@dataclass(frozen=True)
class MemoryHeld(Diagnostic):
    code: ClassVar[str] = "PWC0507"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} would wait for ever for memory of {island}"
    have: ClassVar[str] = "{free} free of {limit} a device; arrays of {client} itself hold {held}, nothing is in flight"
    need: ClassVar[str] = "{size} more on one device"
    hint: ClassVar[str] = "drop or donate arrays that are not needed; pw.status() shows them"
    program: str
    island: str
    free: str
    limit: str
    held: str
    client: str
    size: str


@dataclass(frozen=True)
class Hang(Diagnostic):
    code: ClassVar[str] = "PWC0901"
    exit: ClassVar[Exit] = Exit.HANG
    title: ClassVar[str] = "no progress for {seconds} s, and nothing computes: run {run} of {program} hangs"
    have: ClassVar[str] = "{calls}"
    need: ClassVar[str] = "each device of a gang to reach its collectives (client {client}; {others})"
    hint: ClassVar[str] = (
        "its devices are lost: go on from a snapshot, programs are placed anew; PATHWAYS_HANG_TIMEOUT=0 waits for ever"
    )
    seconds: str
    program: str
    run: int
    client: str
    calls: str
    others: str


@dataclass(frozen=True)
class PerhapsHang(Diagnostic):
    code: ClassVar[str] = "PWC0902"
    severity: ClassVar[str] = "warning"
    title: ClassVar[str] = "no progress for {seconds} s: run {run} of {program} may hang"
    have: ClassVar[str] = "{calls}"
    need: ClassVar[str] = "progress, or a proof that nothing computes (client {client}; {others})"
    hint: ClassVar[str] = (
        "a long computation is no hang: nothing is done about it; this is said again after twice the time"
    )
    seconds: str
    program: str
    run: int
    client: str
    calls: str
    others: str


@dataclass(frozen=True)
class UnknownCallback(Diagnostic):
    code: ClassVar[str] = "PWC0510"
    title: ClassVar[str] = "{computation} calls back to a Python process that is not this one"
    have: ClassVar[str] = "a dump or plan of another process, or a dump whose program is gone"
    need: ClassVar[str] = "the process in which the program was traced"
    hint: ClassVar[str] = "compile the program from its source, and call it there"
    computation: str


@dataclass(frozen=True)
class CalledInside(Diagnostic):
    code: ClassVar[str] = "PWC0511"
    title: ClassVar[str] = "{program} was called from inside a host callback of {computation}"
    have: ClassVar[str] = "a run that would wait for the devices that wait for the callback"
    need: ClassVar[str] = "callbacks that compute on the host"
    hint: ClassVar[str] = "return the value from the program, and call the other one with it"
    program: str
    computation: str


@dataclass(frozen=True)
class DeviceLost(Diagnostic):
    code: ClassVar[str] = "PWC0512"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "device {device} of {island} was lost: {reason}"
    have: ClassVar[str] = "an array with a shard on it"
    need: ClassVar[str] = "all shards"
    hint: ClassVar[str] = "go on from the last snapshot (pw.save, pw.restore): programs are placed anew where they fit"
    island: str
    device: int
    reason: str


@dataclass(frozen=True)
class CannotReplace(Diagnostic):
    code: ClassVar[str] = "PWC0513"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "{program} cannot be placed anew after the loss of a device of {island}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "{advice}"
    program: str
    island: str
    have_: str
    needs: str
    advice: str


@dataclass(frozen=True)
class NotYours(Diagnostic):
    code: ClassVar[str] = "PWC0508"
    title: ClassVar[str] = "{name} belongs to another client"
    have: ClassVar[str] = "an array of {owner}, used by {client}"
    need: ClassVar[str] = "arrays of the client that uses them"
    hint: ClassVar[str] = "enter the client here, too (with client: ...), or hand over a copy: np.asarray(x)"
    name: str
    owner: str
    client: str


@dataclass(frozen=True)
class ClientClosed(Diagnostic):
    code: ClassVar[str] = "PWC0509"
    title: ClassVar[str] = "the client {client} is gone"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a client that is there: its arrays are freed when it goes"
    hint: ClassVar[str] = "read results (np.asarray) before the client's with block ends"
    client: str
    have_: str


@dataclass(frozen=True)
class ClientSuspended(Diagnostic):
    code: ClassVar[str] = "PWC0515"
    title: ClassVar[str] = "the client {client} is suspended"
    have: ClassVar[str] = "arrays that have left device memory"
    need: ClassVar[str] = "a client that is there"
    hint: ClassVar[str] = "client.resume() brings them back"
    client: str


@dataclass(frozen=True)
class TooMuchToFetch(Diagnostic):
    code: ClassVar[str] = "PWC0516"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "reading {name} would copy {size} from {island} to the host"
    have: ClassVar[str] = "a limit of {limit} an array"
    need: ClassVar[str] = "arrays that fit into the memory of the controller"
    hint: ClassVar[str] = "reduce or slice it in a program, or raise the limit: {how}"
    name: str
    size: str
    island: str
    limit: str
    how: str = "PATHWAYS_FETCH_LIMIT=64GiB, pwc run --fetch-limit 64GiB"


@dataclass(frozen=True)
class RunCancelled(Diagnostic):
    code: ClassVar[str] = "PWC0518"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "run {run} of {program} was cancelled"
    have: ClassVar[str] = "a result that is not computed any more"
    need: ClassVar[str] = "a run that ends"
    hint: ClassVar[str] = "call the program again"
    program: str
    run: int


@dataclass(frozen=True)
class Forked(Diagnostic):
    code: ClassVar[str] = "PWC0520"
    title: ClassVar[str] = "this process was forked from one that has devices"
    have: ClassVar[str] = "a copy of a process whose devices and threads stayed behind"
    need: ClassVar[str] = "a process that makes devices of its own"
    hint: ClassVar[str] = "multiprocessing.get_context('spawn'), or fork before the first program is called"


@dataclass(frozen=True)
class StillRunning(Diagnostic):
    code: ClassVar[str] = "PWC0519"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{name} was not computed within {seconds} s"
    have: ClassVar[str] = "a result of {computation} that is being computed"
    need: ClassVar[str] = "more time"
    hint: ClassVar[str] = "wait again: the run goes on; x.cancel() ends a loop on data"
    name: str
    seconds: str
    computation: str


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class SharedCache(Diagnostic):
    code: ClassVar[str] = "PWC0708"
    severity: ClassVar[str] = "warning"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the cache {folder} is not used: others may change what is in it"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "a folder of this user's own, in which no other user may write"
    hint: ClassVar[str] = "chmod go-w {folder}, or let PATHWAYS_CACHE name another folder"
    folder: str
    problem: str


@dataclass(frozen=True)
class SnapshotGone(Diagnostic):
    code: ClassVar[str] = "PWC0517"
    title: ClassVar[str] = "{name} did not come back from where it was suspended"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the file that suspend wrote, until resume has read it"
    hint: ClassVar[str] = "a folder that is not cleaned; pw.restore from the last snapshot"
    name: str
    problem: str


@dataclass(frozen=True)
class RefusedByXla(Diagnostic):
    code: ClassVar[str] = "PWC0614"
    title: ClassVar[str] = "XLA does not compile {computation}"
    have: ClassVar[str] = "{cause}"
    need: ClassVar[str] = "a computation that XLA compiles for {devices} {kind} devices"
    hint: ClassVar[str] = "run the function with jax.jit alone: what XLA refuses there, it refuses here"
    computation: str
    cause: str
    devices: int
    kind: str
