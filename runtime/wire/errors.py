"""Defines the errors of communication between processes: a lost process, different versions, invalid keys, a missing
cluster, problems with Ray. `pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit


class HostLost(Diagnostic):
    code: ClassVar[str] = "PWC0910"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the host of {island} is lost"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "the process that owns the devices of the island"
    hint: ClassVar[str] = "the host is restarted: continue from saved values; arrays of other islands are kept"
    island: str
    reason: str


class IslandRemoved(Diagnostic):
    code: ClassVar[str] = "PWC0922"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{island} was removed from the cluster"
    have: ClassVar[str] = "a value or a run of the removed island"
    need: ClassVar[str] = "values of islands in pw.islands()"
    hint: ClassVar[str] = "continue with arrays of other islands, or with pw.restore; pw.add_island() adds an island"
    island: str


class WrongIslands(Diagnostic):
    code: ClassVar[str] = "PWC0923"
    title: ClassVar[str] = "the islands cannot be changed: {problem}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pw.islands() lists the islands of the cluster"
    problem: str
    have_: str
    rule: str


class BadMessage(Diagnostic):
    code: ClassVar[str] = "PWC0911"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "a process of the cluster sent an invalid message"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = (
        "install the same version for all processes of a cluster; if they have it, please report a bug"
    )
    have_: str
    rule: str


class NotOverProcesses(Diagnostic):
    code: ClassVar[str] = "PWC0912"
    title: ClassVar[str] = "{what} is not possible if islands are separate processes"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "run it without --cluster and pw.cluster"
    what: str
    have_: str
    rule: str


class NoPeer(Diagnostic):
    code: ClassVar[str] = "PWC0913"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "there is no connection to the process at {address}"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a {wanted} of the same cluster, whose certificate is valid now"
    hint: ClassVar[str] = (
        "compare the address, clocks and keys (--keys, PATHWAYS_KEYS) of both sides; renew expired keys"
    )
    address: str
    reason: str
    wanted: str


class BadKeys(Diagnostic):
    code: ClassVar[str] = "PWC0914"
    title: ClassVar[str] = "{folder} does not contain the keys of a cluster"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "do what `need` says, or make new keys for each member, each in its own folder"
    folder: str
    have_: str
    rule: str


class NoCryptography(Diagnostic):
    code: ClassVar[str] = "PWC0915"
    title: ClassVar[str] = "this installation cannot create keys"
    have: ClassVar[str] = "the package cryptography is not installed"
    need: ClassVar[str] = "cryptography, on the machine where keys are created"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[cluster]'"


class ForeignArray(Diagnostic):
    code: ClassVar[str] = "PWC0916"
    title: ClassVar[str] = "{who} uses an array of another client"
    have: ClassVar[str] = "{message} with number {number}, which belongs to client {owner}"
    need: ClassVar[str] = "numbers that belong to client {client}"
    hint: ClassVar[str] = "pass values between clients as numpy arrays, or through pw.save"
    who: str
    message: str
    number: int
    owner: int
    client: int


class ControllerLost(Diagnostic):
    code: ClassVar[str] = "PWC0917"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the controller of the cluster is lost"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "the process that `pwc cluster start` started at {address}"
    hint: ClassVar[str] = "start the cluster again, and continue from saved values"
    address: str
    reason: str


class NoCluster(Diagnostic):
    code: ClassVar[str] = "PWC0918"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "there is no cluster at {address}"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a cluster that is running"
    hint: ClassVar[str] = "`pwc cluster start` starts a cluster; `pwc cluster status` shows it"
    address: str
    reason: str


class ClusterThere(Diagnostic):
    code: ClassVar[str] = "PWC0919"
    title: ClassVar[str] = "a cluster is already running at {address}"
    have: ClassVar[str] = "the process {pid}"
    need: ClassVar[str] = "one cluster for each name"
    hint: ClassVar[str] = "`pwc cluster stop`, or choose another name: `--name other`"
    address: str
    pid: int


class NoDataArrives(Diagnostic):
    code: ClassVar[str] = "PWC0924"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "values of {source} do not reach {target}"
    have: ClassVar[str] = "no data in {seconds} seconds, while no host of the run computed"
    need: ClassVar[str] = "a network that carries data between all hosts, through every firewall between them"
    hint: ClassVar[str] = (
        "call the program again: the connection is made again; PATHWAYS_TRANSFER_TIMEOUT sets the seconds"
    )
    source: str
    target: str
    seconds: str


class DifferentParts(Diagnostic):
    code: ClassVar[str] = "PWC0921"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the hosts of one island have loaded different plans"
    have: ClassVar[str] = "{host} has another partition of {program} than {other}"
    need: ClassVar[str] = (
        "the same partition on all hosts: otherwise their collectives would wait for each other forever"
    )
    hint: ClassVar[str] = (
        "install the same version for all processes of a cluster; if they have it, please report a bug"
    )
    program: str
    host: str
    other: str


class NoRay(Diagnostic):
    code: ClassVar[str] = "PWC0925"
    title: ClassVar[str] = "this installation cannot connect to Ray"
    have: ClassVar[str] = "the package ray is not installed"
    need: ClassVar[str] = "ray, here and on all nodes"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[ray]'"


class RayWithoutToken(Diagnostic):
    code: ClassVar[str] = "PWC0926"
    title: ClassVar[str] = "Ray at {address} accepts every process of its network"
    have: ClassVar[str] = "it listens on an address other than 127.0.0.1, with RAY_AUTH_MODE={mode}"
    need: ClassVar[str] = "RAY_AUTH_MODE=token, here and at `ray start`: a process that reaches Ray can run any code"
    hint: ClassVar[str] = "see docs/ray.md; `pwc cluster start --ray local` starts a Ray that only you can reach"
    address: str
    mode: str


class RayLacks(Diagnostic):
    code: ClassVar[str] = "PWC0927"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "the nodes of Ray do not have room for these islands"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{needs}"
    hint: ClassVar[str] = "add nodes, or request less; without TOPOLOGY, the nodes of Ray determine the islands"
    have_: str
    needs: str


class RayFailed(Diagnostic):
    code: ClassVar[str] = "PWC0928"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "Ray at {address} refused or failed"
    have: ClassVar[str] = "{reason}"
    need: ClassVar[str] = "a running Ray cluster with the same versions of Ray and Python as here"
    hint: ClassVar[str] = "`ray status --address {address}` shows its state; `pwc cluster start --ray local` starts one"
    address: str
    reason: str


class ControllerFailed(Diagnostic):
    code: ClassVar[str] = "PWC0929"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "the controller failed during {what}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "no change in your program: this is a bug of pathways"
    hint: ClassVar[str] = "call the program again, and please report the output of the controller"
    what: str
    problem: str
