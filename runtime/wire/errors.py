"""Defines the errors of communication between processes: a lost process, different versions, invalid keys, a missing
cluster, problems with Ray. `pwc explain` lists them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit


@dataclass(frozen=True)
class HostLost(Diagnostic):
    code: ClassVar[str] = "PWC0910"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the host of {island} is gone"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "the process that has the devices of the island"
    hint: ClassVar[str] = "the host is started again: continue from saved values; other islands keep their arrays"
    island: str
    reason: str


@dataclass(frozen=True)
class IslandRemoved(Diagnostic):
    code: ClassVar[str] = "PWC0922"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{island} was removed from the cluster"
    have: ClassVar[str] = "what lay or ran there"
    need: ClassVar[str] = "values of islands that are there: pw.islands()"
    hint: ClassVar[str] = "go on from arrays of other islands, or from pw.restore; pw.add_island() adds an island"
    island: str


@dataclass(frozen=True)
class WrongIslands(Diagnostic):
    code: ClassVar[str] = "PWC0923"
    title: ClassVar[str] = "islands cannot be changed in this way: {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pw.islands() lists the islands of the cluster"
    problem: str
    have_: str
    rule: str


@dataclass(frozen=True)
class BadMessage(Diagnostic):
    code: ClassVar[str] = "PWC0911"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "a process of the cluster sent what is no message"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "start all processes of a cluster from one installation; if they are, please file a bug"
    have_: str
    rule: str


@dataclass(frozen=True)
class NotOverProcesses(Diagnostic):
    code: ClassVar[str] = "PWC0912"
    title: ClassVar[str] = "{what} cannot be done where islands are in processes of their own"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "run it without --cluster and pw.cluster: one process can do all of it"
    what: str
    have_: str
    rule: str


@dataclass(frozen=True)
class NoPeer(Diagnostic):
    code: ClassVar[str] = "PWC0913"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "there is no connection with the process at {address}"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a {wanted} of the same cluster, whose certificate is valid now"
    hint: ClassVar[str] = "compare address, clocks and keys (--keys, PATHWAYS_KEYS) on both sides; renew expired keys"
    address: str
    reason: str
    wanted: str


@dataclass(frozen=True)
class BadKeys(Diagnostic):
    code: ClassVar[str] = "PWC0914"
    title: ClassVar[str] = "{folder} does not hold keys of a cluster"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "do what `need` says, or make the keys of each member anew, each in its own folder"
    folder: str
    have_: str
    rule: str


@dataclass(frozen=True)
class NoCryptography(Diagnostic):
    code: ClassVar[str] = "PWC0915"
    title: ClassVar[str] = "this installation cannot make keys"
    have: ClassVar[str] = "no package cryptography"
    need: ClassVar[str] = "cryptography, where keys are made"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[cluster]'"


@dataclass(frozen=True)
class ForeignArray(Diagnostic):
    code: ClassVar[str] = "PWC0916"
    title: ClassVar[str] = "{who} names what is another client's"
    have: ClassVar[str] = "{message} with number {number}, which is of client {owner}"
    need: ClassVar[str] = "numbers of client {client}"
    hint: ClassVar[str] = "values go from client to client as arrays of numpy, or through pw.save"
    who: str
    message: str
    number: int
    owner: int
    client: int


@dataclass(frozen=True)
class ControllerLost(Diagnostic):
    code: ClassVar[str] = "PWC0917"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the controller of the cluster is gone"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "the process that `pwc cluster start` has started at {address}"
    hint: ClassVar[str] = "start the cluster again, and go on from values that were saved"
    address: str
    reason: str


@dataclass(frozen=True)
class NoCluster(Diagnostic):
    code: ClassVar[str] = "PWC0918"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "there is no cluster at {address}"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a cluster that runs"
    hint: ClassVar[str] = "`pwc cluster start` starts one, and `pwc cluster status` shows it"
    address: str
    reason: str


@dataclass(frozen=True)
class ClusterThere(Diagnostic):
    code: ClassVar[str] = "PWC0919"
    title: ClassVar[str] = "there is a cluster at {address} already"
    have: ClassVar[str] = "the process {pid}"
    need: ClassVar[str] = "one cluster of a name"
    hint: ClassVar[str] = "`pwc cluster stop`, or `--name other`"
    address: str
    pid: int


@dataclass(frozen=True)
class NothingComesThrough(Diagnostic):
    code: ClassVar[str] = "PWC0924"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "values of {source} do not come through to {target}"
    have: ClassVar[str] = "nothing in {seconds} seconds, in which no host of the run has computed anything"
    need: ClassVar[str] = "a network that carries data from each host to each other, whatever firewall is between them"
    hint: ClassVar[str] = "call it again: the connection is made anew; PATHWAYS_TRANSFER_TIMEOUT sets the seconds"
    source: str
    target: str
    seconds: str


@dataclass(frozen=True)
class DifferentParts(Diagnostic):
    code: ClassVar[str] = "PWC0921"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the hosts of one island have loaded different plans"
    have: ClassVar[str] = "{host} has another part of {program} than {other}"
    need: ClassVar[str] = "the same part on all of them, or their collectives would wait for each other for ever"
    hint: ClassVar[str] = "start all processes of a cluster from one installation; if they are, please file a bug"
    program: str
    host: str
    other: str


@dataclass(frozen=True)
class NoRay(Diagnostic):
    code: ClassVar[str] = "PWC0925"
    title: ClassVar[str] = "this installation cannot speak with Ray"
    have: ClassVar[str] = "no package ray"
    need: ClassVar[str] = "ray, here and on the nodes"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[ray]'"


@dataclass(frozen=True)
class RayWithoutToken(Diagnostic):
    code: ClassVar[str] = "PWC0926"
    title: ClassVar[str] = "Ray at {address} is open to its network"
    have: ClassVar[str] = "it listens beyond 127.0.0.1, and RAY_AUTH_MODE={mode}"
    need: ClassVar[str] = "RAY_AUTH_MODE=token, here and at `ray start`: a process that reaches Ray can run anything"
    hint: ClassVar[str] = "docs/ray.md shows how; `pwc cluster start --ray local` starts a Ray that only you reach"
    address: str
    mode: str


@dataclass(frozen=True)
class RayLacks(Diagnostic):
    code: ClassVar[str] = "PWC0927"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the nodes of Ray cannot have these islands"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "add nodes, or ask for less; without TOPOLOGY the islands are those that the nodes make"
    have_: str
    needs: str


@dataclass(frozen=True)
class RayFailed(Diagnostic):
    code: ClassVar[str] = "PWC0928"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "Ray at {address} does not do what was asked"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a Ray cluster that runs, of the same versions of Ray and Python as here"
    hint: ClassVar[str] = "`ray status --address {address}` shows it; `pwc cluster start --ray local` starts one"
    address: str
    reason: str


@dataclass(frozen=True)
class ControllerFailed(Diagnostic):
    code: ClassVar[str] = "PWC0929"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the controller has failed at {what}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "nothing of you: this is a bug of pathways"
    hint: ClassVar[str] = "call the program again, and please report it with what the controller has printed"
    what: str
    problem: str
