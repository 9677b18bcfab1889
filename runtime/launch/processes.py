"""Hosts as processes of this machine, one or several an island, joined to their controller by Unix sockets.

The socket lies in a folder that only this user may enter, and who connects is asked for the number of its process: it
must be one that was started here. A host ends when its stream does, so that none outlives its controller, however that
ends. The hosts of an island of several meet at a service, a process beside them: where it was one of them, its end
would abort the others.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import ONE_EACH, RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch.group_service import GroupService, start_group_service
from pathways.runtime.launch.host_start import HOST, host_arguments, log_of
from pathways.runtime.launch.spawn import spawn, why_ended
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import process_at
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.versions import difference

START = 120.0
"""Seconds that hosts may take to start."""


@dataclass(eq=False)
class HostProcess:
    """A process that has said hello. `island`: the name of the host, which is that of its island where it is alone."""

    island: str
    connection: Connection
    process: "subprocess.Popen[bytes]"
    log: Path
    meeting: GroupService | None = None
    """Where the hosts of its island meet; ends with it."""

    def kill(self) -> None:
        """Ends it now, also where it is frozen."""
        self.process.kill()
        if self.meeting is not None:
            self.meeting.kill()

    def end(self, seconds: float = 5.0) -> None:
        """Waits for its end, now that its stream has ended; kills it where it does not end by that. Removes its log."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.meeting is not None:
            self.meeting.end()
            self.meeting.log.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder still has logs of hosts that were started with this one
            self.log.parent.rmdir()


def start_hosts(islands: Sequence[Island], platform: str, ranks: RankTable = ONE_EACH) -> list[HostProcess]:
    """Starts the processes of each island, and waits until all have said hello. Raises PWC0910 where one does not.

    `ranks` says how many hosts each island of the cluster has.
    """
    folder = Path(tempfile.mkdtemp(prefix="pathways-"))  # of mode 0700
    address = str(folder / "controller")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(sum(ranks.count(i.name) for i in islands))
        started: dict[str, subprocess.Popen[bytes]] = {}
        meetings: dict[str, GroupService] = {}
        try:
            for island in islands:
                if ranks.are_several(island.name):
                    log = log_of(folder, island.name)
                    meetings[island.name] = start_group_service(ranks.count(island.name), log)
                for rank, name in enumerate(ranks.names(island.name)):
                    meeting = meetings.get(island.name)
                    started[name] = _start(island, platform, address, folder, ranks, rank, meeting)
            found = _greeted(listener, started, folder)
        except BaseException:
            for process in started.values():
                process.kill()
                process.wait()
            for meeting in meetings.values():
                meeting.end()
            shutil.rmtree(folder, ignore_errors=True)
            raise
    os.unlink(address)
    of = {ranks.names(island)[0]: meeting for island, meeting in meetings.items()}
    for host in found:
        host.meeting = of.get(host.island)
    return found


def _start(
    island: Island, platform: str, address: str, folder: Path, ranks: RankTable, rank: int, meeting: GroupService | None
) -> "subprocess.Popen[bytes]":
    arguments = host_arguments(platform, ranks, island, rank, meeting.address if meeting is not None else "")
    return spawn(HOST, ["--socket", address, *arguments], log_of(folder, ranks.names(island.name)[rank]))


def _greeted(listener: socket.socket, started: "dict[str, subprocess.Popen[bytes]]", folder: Path) -> list[HostProcess]:
    """Waits for the hello of each process."""
    found: dict[str, HostProcess] = {}
    until = time.monotonic() + START
    listener.settimeout(0.2)
    try:
        with Activity("starting", len(started), "hosts") as starting:
            while len(found) < len(started):
                starting.done = len(found)
                for name, process in started.items():
                    if (code := process.poll()) is not None:
                        raise PathwaysError(HostLost(island=name, reason=why_ended(code, log_of(folder, name))))
                if time.monotonic() > until:
                    missing = ", ".join(n for n in started if n not in found)
                    raise PathwaysError(HostLost(island=missing, reason=f"it did not start in {START:g} seconds"))
                with contextlib.suppress(TimeoutError):
                    sock, _ = listener.accept()
                    with contextlib.suppress(ConnectionEnded):  # its process says why, in a moment
                        if (host := _welcomed(sock, started, folder)) is not None:
                            found[host.island] = host
    except BaseException:
        for host in found.values():
            host.connection.close()
        raise
    return [found[name] for name in started]


def _welcomed(sock: socket.socket, started: "dict[str, subprocess.Popen[bytes]]", folder: Path) -> HostProcess | None:
    """The host at the other end of a socket; None where it is another process than those that were started."""
    pid, user = process_at(sock)
    name = next((n for n, p in started.items() if p.pid == pid), None)
    if name is None or user != os.getuid():
        sock.close()
        return None
    sock.settimeout(START)
    connection = Connection(sock)
    try:
        hello = connection.receive()
        sock.settimeout(None)
        expected = isinstance(hello, m.Hello) and hello.island == name
        if isinstance(hello, m.Hello) and expected and (other := difference(hello.versions)):
            raise PathwaysError(HostLost(island=name, reason=f"it is of another version: {other}"))
    except BaseException:  # the host was killed before its hello, for example
        connection.close()
        raise
    if not expected:
        connection.close()
        return None
    return HostProcess(name, connection, started[name], log_of(folder, name))
