"""Compares the two modules of devices: what hosts use of the one that wraps PJRT, timed devices must have, too."""

import ast
import inspect
from pathlib import Path

from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.timed import pjrt as timed

HOST = Path(__file__).parents[4] / "runtime/host"
MAKING = {"make_devices", "host_devices", "default_platform", "lowering_platform", "weakly_typed"}
"""Names for processes that make real devices, or that call JAX."""


def used() -> set[str]:
    found: set[str] = set()
    for path in HOST.rglob("*.py"):
        if path.parent.name == "timed":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pjrt":
                found.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").endswith("devices.pjrt"):
                found |= {name.name for name in node.names}
    return found - MAKING


def test_timed_devices_have_all_names_that_hosts_use() -> None:
    names = used()
    assert len(names) > 25
    assert not [name for name in sorted(names) if not hasattr(timed, name)]


def test_functions_of_both_take_the_same_arguments() -> None:
    for name in used():
        real, other = getattr(pjrt, name), getattr(timed, name)
        if inspect.isfunction(real):
            assert list(inspect.signature(real).parameters) == list(inspect.signature(other).parameters), name
