"""A cluster of this machine: its folder, and the process of its controller, which stays when this one ends."""

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
"""The name of a cluster that was given none."""
START = 30.0
"""Seconds that a controller may take to start."""
MOST_PATH = 100
"""The most bytes of the path of a Unix socket."""
PID, TOPOLOGY, RAY = "pid", "topology.toml", "ray.json"
"""In the folder of a cluster, beside its socket and logs; the last one where Ray has started it."""
CONTROLLER_MODULE = "pathways.runtime.control.serve"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def cluster_folder(address: str) -> Path:
    """The folder of a cluster, by name or path. Raises PWC0918 for what is neither."""
    if os.sep in address:
        return Path(address)
    if not _NAME.fullmatch(address):
        raise PathwaysError(NoCluster(address=address, reason="a name of other characters than A-Z, a-z, 0-9, - and _"))
    base = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(base) / "pathways" if base else Path(tempfile.gettempdir()) / f"pathways-{os.getuid()}"
    return root / address


def connect_here(address: str) -> socket.socket:
    """Connects to the controller of a cluster of this machine. Raises PWC0918 for none, and for another user's."""
    folder = cluster_folder(address)
    sock = socket.socket(socket.AF_UNIX)
    try:
        if folder.stat().st_uid != os.getuid():
            raise PathwaysError(NoCluster(address=str(folder), reason="a folder of another user"))
        sock.connect(str(folder / CONTROLLER))
    except (OSError, PathwaysError) as error:
        sock.close()
        if isinstance(error, PathwaysError):
            raise
        raise PathwaysError(NoCluster(address=str(folder), reason=error.strerror or str(error))) from None
    return sock


@dataclass(frozen=True)
class MemberPort:
    """Where a controller listens for members from elsewhere, the folder of the cluster's keys, and whether hosts come
    by themselves, started on whatever machine."""

    bind: Address
    keys: Path
    join: bool

    @property
    def arguments(self) -> list[str]:
        return ["--bind", show_address(self.bind), "--keys", str(self.keys.absolute())]

    def check(self, topology: Topology) -> None:
        """Raises PWC0914 where keys are missing that are needed here, or are not valid, PWC0707 for all addresses."""
        if self.bind[0] in ("", "0.0.0.0", "::"):  # it is also where others are told to come
            rule, value = "one address of this machine, at which others reach it", show_address(self.bind)
            raise PathwaysError(BadSetting(source="--bind", value=value, rule=rule, example="--bind 10.0.0.1:7000"))
        checked_keys(member_folder(self.keys, "controller"), "controller")
        ranks = ranks_in(topology)
        for name in (n for island in (() if self.join else topology.islands) for n in ranks.names(island.name)):
            checked_keys(member_folder(self.keys, "host", name), "host", name)


def start_controller(
    address: str, topology: Topology, platform: str, policy: str, port: MemberPort | None = None
) -> Path:
    """Starts the controller of a cluster, which starts its hosts; returns its folder.

    Raises PWC0919 where one runs already, PWC0918 where it does not start, PWC0914 for keys that are none.
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
    until = time.monotonic() + START
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
    """Whether a controller answers at an address."""
    with contextlib.suppress(PathwaysError):
        connect_here(address).close()
        return True
    return False


def make_folder(address: str, topology: Topology | None) -> Path:
    """Makes the folder of a new cluster, with its topology; that file is empty where it is not known yet.

    Raises PWC0919 where a cluster runs there already, PWC0918 where the folder cannot be made.
    """
    folder = cluster_folder(address)
    if is_there(address):
        raise PathwaysError(ClusterThere(address=str(folder), pid=_pid(folder)))
    _make(folder, address)
    write_private(folder / TOPOLOGY, write_topology(topology).encode() if topology is not None else b"")
    return folder


def _make(folder: Path, address: str) -> None:
    """Makes the folder, which no other user may enter. Raises PWC0918 where that cannot be."""
    try:
        if len(os.fsencode(folder)) > MOST_PATH - 32:
            raise OSError(f"a path of more than {MOST_PATH - 32} bytes, in which no socket fits")
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = folder.parent.stat() if os.sep in address else folder.parent.lstat()
        if os.sep in address:
            if known.st_mode & stat.S_IWOTH and not known.st_mode & stat.S_ISVTX:
                raise OSError(f"any user may replace what is in {folder.parent}: chmod o-w, or another folder")
        else:
            if known.st_uid != os.getuid() or not stat.S_ISDIR(known.st_mode):
                raise OSError(f"{folder.parent} is another user's")
            folder.parent.chmod(0o700)
        clear_folder(folder)  # what a controller that was killed has left
        if folder.exists() and any(folder.iterdir()):
            raise OSError("a folder with files that are not a cluster's")
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        (folder / LOGS).mkdir(mode=0o700)
    except OSError as error:
        raise PathwaysError(NoCluster(address=str(folder), reason=str(error))) from None


def clear_folder(folder: Path) -> None:
    """Removes what a cluster has made of a folder, and the folder where nothing else is in it."""
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
