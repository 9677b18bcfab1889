"""Starts a cluster on this machine that outlives the calling process: creates its folder and starts its controller.
`pwc cluster start` and the API call it.
"""

import contextlib
import os
import re
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadSetting
from pathways.dialect.files import write_private
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology, write_topology
from pathways.runtime.launch.local_hosts import CONTROLLER, LOGS
from pathways.runtime.launch.spawn import last_words, spawn
from pathways.runtime.threads import start_thread
from pathways.runtime.wire.addresses import Address, show_address
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.errors import ClusterThere, NoCluster
from pathways.runtime.wire.tls import checked_keys

DEFAULT = "default"
"""The name of a cluster if none is given."""
START_TIMEOUT_S = 30.0
"""Time limit for the start of a controller."""
MAX_SOCKET_PATH_BYTES = 100
"""Maximum bytes of the path of a Unix socket."""
PID, TOPOLOGY, RAY = "pid", "topology.toml", "ray.json"
"""Files in a cluster's folder, besides its socket and logs. The last one exists only if Ray started the cluster."""
CONTROLLER_MODULE = "pathways.runtime.control.serve"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def cluster_folder(address: str) -> Path:
    """Returns the folder of a cluster, given its name or path. Raises PWC0918 for an invalid name."""
    if os.sep in address:
        return Path(address)
    if not _NAME.fullmatch(address):
        raise PathwaysError(NoCluster(address=address, reason="a name may only have A-Z, a-z, 0-9, - and _"))
    base = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(base) / "pathways" if base else Path(tempfile.gettempdir()) / f"pathways-{os.getuid()}"
    return root / address


def connect_here(address: str) -> socket.socket:
    """Connects to a cluster's controller on this machine. Raises PWC0918 if there is none, or for another user's."""
    folder = cluster_folder(address)
    sock = socket.socket(socket.AF_UNIX)
    try:
        if folder.stat().st_uid != os.getuid():
            raise PathwaysError(NoCluster(address=str(folder), reason="the folder belongs to another user"))
        sock.connect(str(folder / CONTROLLER))
    except (OSError, PathwaysError) as error:
        sock.close()
        if isinstance(error, PathwaysError):
            raise
        raise PathwaysError(NoCluster(address=str(folder), reason=error.strerror or str(error))) from None
    return sock


@dataclass(frozen=True)
class MemberPort:
    """The address where a controller listens for members on other machines, and the folder of the cluster's keys.

    `join`: hosts are started externally, on any machine.
    """

    bind: Address
    keys: Path
    join: bool

    @property
    def arguments(self) -> list[str]:
        return ["--bind", show_address(self.bind), "--keys", str(self.keys.absolute())]

    def check(self, topology: Topology) -> None:
        """Raises PWC0914 if required keys are missing or invalid, PWC0707 for a wildcard address."""
        if self.bind[0] in ("", "0.0.0.0", "::"):  # members on other machines connect to this address
            rule, value = "an address of this machine that other machines can reach", show_address(self.bind)
            raise PathwaysError(BadSetting(source="--bind", value=value, rule=rule, example="--bind 10.0.0.1:7000"))
        checked_keys(member_folder(self.keys, "controller"), "controller")
        ranks = ranks_in(topology)
        for name in (n for island in (() if self.join else topology.islands) for n in ranks.names(island.name)):
            checked_keys(member_folder(self.keys, "host", name), "host", name)


def start_controller(
    address: str, topology: Topology, platform: str, policy: str, port: MemberPort | None = None
) -> Path:
    """Starts the controller of a cluster, which starts its hosts; returns the cluster's folder.

    Raises PWC0919 if one is running already, PWC0918 if it does not start, PWC0914 for invalid keys.
    """
    if port is not None:
        port.check(topology)
    folder = make_folder(address, topology)
    log = folder / LOGS / "controller.log"
    arguments = [
        "--folder", str(folder), "--topology", str(folder / TOPOLOGY), "--platform", platform, "--policy", policy
    ]  # fmt: skip
    if port is not None:
        arguments += [*port.arguments, *(["--join"] if port.join else [])]
    process = spawn(CONTROLLER_MODULE, arguments, log)
    write_private(folder / PID, str(process.pid).encode())
    until = time.monotonic() + START_TIMEOUT_S
    while not is_there(address):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            words = last_words(log)
            clear_folder(folder)
            raise PathwaysError(NoCluster(address=str(folder), reason=f"its controller did not start: {words}"))
        time.sleep(0.02)
    start_thread("pathways-reaper", process.wait)
    return folder


def is_there(address: str) -> bool:
    """Whether a controller accepts connections at an address."""
    with contextlib.suppress(PathwaysError):
        connect_here(address).close()
        return True
    return False


def make_folder(address: str, topology: Topology | None) -> Path:
    """Creates the folder of a new cluster with its topology file, which is empty if the topology is not known yet.

    Raises PWC0919 if a cluster is running there, PWC0918 if the folder cannot be created.
    """
    folder = cluster_folder(address)
    if is_there(address):
        raise PathwaysError(ClusterThere(address=str(folder), pid=_pid(folder)))
    _make(folder, address)
    write_private(folder / TOPOLOGY, write_topology(topology).encode() if topology is not None else b"")
    return folder


def _make(folder: Path, address: str) -> None:
    """Creates the folder, which no other user may enter. Raises PWC0918 if that is impossible."""
    try:
        if len(os.fsencode(folder)) > MAX_SOCKET_PATH_BYTES - 32:
            raise OSError(f"the path is longer than {MAX_SOCKET_PATH_BYTES - 32} bytes, too long for a socket")
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = folder.parent.stat() if os.sep in address else folder.parent.lstat()
        if os.sep in address:
            if known.st_mode & stat.S_IWOTH and not known.st_mode & stat.S_ISVTX:
                raise OSError(f"any user may replace files in {folder.parent}: chmod o-w, or use another folder")
        else:
            if known.st_uid != os.getuid() or not stat.S_ISDIR(known.st_mode):
                raise OSError(f"{folder.parent} belongs to another user")
            folder.parent.chmod(0o700)
        clear_folder(folder)  # files of a killed controller
        if folder.exists() and any(folder.iterdir()):
            raise OSError("the folder has files that do not belong to a cluster")
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        (folder / LOGS).mkdir(mode=0o700)
    except OSError as error:
        raise PathwaysError(NoCluster(address=str(folder), reason=str(error))) from None


def clear_folder(folder: Path) -> None:
    """Removes a cluster's files from its folder, and the folder if it contains nothing else."""
    with contextlib.suppress(OSError):
        if not (folder / TOPOLOGY).exists():
            return
        for path in (*folder.iterdir(), *(folder / LOGS).glob("*.log")):
            if path.is_socket() or path.name in (PID, RAY, CONTROLLER) or path.parent.name == LOGS:
                path.unlink(missing_ok=True)
        (folder / LOGS).rmdir()
        (folder / TOPOLOGY).unlink()
        folder.rmdir()


def _pid(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / PID).read_text())
    return 0
