"""What the kernel says of processes: memory, threads, open files, children and the ports that they listen on."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


def memory_of(pid: int | str = "self") -> int:
    """The bytes of memory that a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def threads_of(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def open_files_of(pid: int | str = "self") -> list[str]:
    """What the open files of a process are, but for the one that is opened to look."""
    found: list[str] = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:  # the one that lists them
            continue
    return sorted(found)


def listening() -> set[str]:
    """All sockets of this machine that listen on a TCP port, by inode."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            found |= {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENS}
    return found


def ports_of(pid: int) -> set[str]:
    """The sockets of a process that listen on a TCP port."""
    return listening() & set(open_files_of(pid))


def children_of(pid: int) -> set[int]:
    """The processes that a process has started and not waited for."""
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == pid:
            found.add(int(name))
    return found
