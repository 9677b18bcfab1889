"""What the kernel says of processes: memory, threads, open files, children and the ports that they listen on."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
_LOOPBACK_6, _LOOPBACK_MAPPED = "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"
"""::1 and ::ffff:127.0.0.1, as they stand in /proc/net/tcp6."""


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


def open_to_others() -> set[str]:
    """As `listening`, of addresses that other machines may reach."""
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


def begotten_by(pid: int) -> set[int]:
    """The processes that a process has started, those that these have, and so on."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for one in new for child in children_of(one)} - found
        found |= new
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
