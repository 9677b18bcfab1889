"""Reads the state of processes from /proc: memory, threads, open files, children and listening ports."""

import os
from pathlib import Path

from support import forked_python

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTENS = "0A"
"""State of a listening socket in /proc/net/tcp."""
_LOOPBACK_6, _LOOPBACK_MAPPED = "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"
"""::1 and ::ffff:127.0.0.1 in the format of /proc/net/tcp6."""


def memory_of(pid: int | str = "self") -> int:
    """Returns the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def threads_of(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def open_files_of(pid: int | str = "self") -> list[str]:
    """Lists the open files of a process, without the one opened for the listing and the pipe to its fork server."""
    found: list[str] = []
    own = forked_python.descriptor_of_this_process() if pid in ("self", os.getpid()) else None
    for number in os.listdir(f"/proc/{pid}/fd"):
        if number == str(own):
            continue
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:  # the file opened by listdir, closed by now
            continue
    return sorted(found)


def listening() -> set[str]:
    """Returns all sockets of this machine that listen on a TCP port, by inode."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            found |= {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENS}
    return found


def open_to_others() -> set[str]:
    """Returns the listening sockets whose addresses other machines can reach."""
    found: set[str] = set()
    for table, loopback in (("/proc/net/tcp", ("7F",)), ("/proc/net/tcp6", (_LOOPBACK_6, _LOOPBACK_MAPPED))):
        if os.path.exists(table):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            addresses = {f"socket:[{row[9]}]": row[1].partition(":")[0] for row in rows if row[3] == _LISTENS}
            for name, address in addresses.items():
                known = address[-2:] if table.endswith("tcp") else address
                if not known.startswith(loopback):
                    found.add(name)
    return found


def ports_of(pid: int) -> set[str]:
    """Returns the sockets of a process that listen on a TCP port."""
    return listening() & set(open_files_of(pid))


def children_of(pid: int) -> set[int]:
    """Returns a process's children that are not waited for; of this process, also those that its fork server forked."""
    server = forked_python.server_of_this_process()
    if pid == os.getpid() and server is not None:
        return (_children_of(pid) | _children_of(server)) - {server}
    return _children_of(pid)


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has exited meanwhile
            continue
        if int(fields[1]) == pid:
            found.add(int(name))
    return found


def begotten_by(pid: int) -> set[int]:
    """Returns all descendants of a process: its children, their children, and so on."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for one in new for child in children_of(one)} - found
        found |= new
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
