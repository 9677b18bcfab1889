"""Lists how stable each public name, command, option, environment variable and file format is. `pwc explain` and the
documentation read this table.

`docs/stability.md` says what the marks promise. A test compares the table with the code, so a new public name needs a
row here.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

Mark: TypeAlias = Literal["stable", "beta", "experimental", "internal"]


class Stability(NamedTuple):
    """The mark of one public thing, and the kind of thing that it is."""

    mark: Mark
    kind: str


PROMISES: Mapping[Mark, str] = {
    "stable": "it changes or is removed only after a minor release in which its use printed a warning",
    "beta": "it may change in a minor release; the changelog says how to adapt",
    "experimental": "it may change or be removed in any release",
    "internal": "pathways sets it for its own processes; do not set it",
}
NAMES: Mapping[str, Mark] = {
    **dict.fromkeys(("program", "Program", "Lowered", "Compiled", "load", "Array", "PathwaysError"), "stable"),
    **dict.fromkeys(("make_virtual_device_set", "VirtualDeviceSet", "VirtualSlice", "VirtualDevice"), "stable"),
    **dict.fromkeys(("Topology", "Island", "status", "quiet", "trace"), "stable"),
    **dict.fromkeys(("pipeline", "BatchSemantics", "MicrobatchWarning", "check_microbatches"), "beta"),
    **dict.fromkeys(("cluster", "connect", "Client", "save", "restore", "testing"), "beta"),
    **dict.fromkeys(("islands", "add_island", "remove_island", "proxy", "Proxy"), "experimental"),
    **dict.fromkeys(("search", "Found", "SplitChoice", "from_mpmd", "mpmd_backend"), "experimental"),
}
"""Names of the module `pathways`."""
COMMANDS: Mapping[str, Mark] = {
    **dict.fromkeys(("compile", "run", "check", "inspect", "explain", "passes", "doctor"), "stable"),
    **dict.fromkeys(("viz", "why", "diff", "opt", "cluster", "status", "top", "stack"), "beta"),
    **dict.fromkeys(("search", "simulate", "calibrate", "proxy"), "experimental"),
}
"""Commands of `pwc`; a command of a group has the mark of the group."""
OPTIONS: Mapping[str, Mark] = {
    **dict.fromkeys(("compile --emit", "compile --remat", "compile --layout", "compile --choice"), "experimental"),
    "compile --with-executables": "beta",
    "cluster start --ray": "beta",
    "cluster join --keys": "beta",
}
"""Options whose mark is not that of their command."""
VARIABLES: Mapping[str, Mark] = {
    **dict.fromkeys(("PATHWAYS_ADDRESS", "PATHWAYS_QUIET", "PATHWAYS_CACHE", "PATHWAYS_POLICY"), "stable"),
    **dict.fromkeys(("PATHWAYS_HANG_TIMEOUT", "PATHWAYS_HOST_TIMEOUT", "PATHWAYS_TRANSFER_TIMEOUT"), "beta"),
    **dict.fromkeys(("PATHWAYS_FETCH_LIMIT", "PATHWAYS_EAGER_LIMIT", "PATHWAYS_CUSTOM_CALLS"), "beta"),
    **dict.fromkeys(("PATHWAYS_KEY", "PATHWAYS_KEYS"), "beta"),
    "PATHWAYS_TICKET": "internal",
}
"""Environment variables."""
FORMATS: Mapping[str, Mark] = {
    "topology.toml": "stable",
    "plan.bin": "beta",
    "snapshot": "beta",
    "trace.json": "beta",
    "schedule.csv": "beta",
    "--json": "beta",
    "choice.toml": "experimental",
    "phases/*.mlir": "experimental",
    "wire": "experimental",
}
"""Formats of files, of the JSON that commands print, of dumps, and of messages between processes."""


def stability_of(name: str) -> tuple[str, Stability] | None:
    """Finds the row of what a user asks for, as `pw.pipeline`, `pwc viz`, `PATHWAYS_CACHE` or `plan.bin`.

    Returns its full name and its stability, or None if no such thing is public.
    """
    of_python = name.removeprefix("pathways.").removeprefix("pw.")
    of_pwc = name.removeprefix("pwc ")
    if of_python in NAMES and name == of_pwc:
        return f"pw.{of_python}", Stability(NAMES[of_python], "name of Python")
    if name != of_python:
        return None
    if of_pwc in OPTIONS:
        return f"pwc {of_pwc}", Stability(OPTIONS[of_pwc], "option")
    group = of_pwc.partition(" ")[0]
    if group in COMMANDS and "-" not in of_pwc:
        return f"pwc {of_pwc}", Stability(COMMANDS[group], "command")
    tables = ((VARIABLES, "environment variable"), (FORMATS, "format"))
    return next(((name, Stability(table[name], kind)) for table, kind in tables if name in table), None)
