"""The packages of the controller need no JAX, so that a standalone controller is small and starts fast."""

from support.forked_python import processes_from_nothing
from support.processes import run_python

SCRIPT = """
import importlib, pkgutil, sys
import pathways
for room in ("control", "launch", "wire"):
    package = importlib.import_module("pathways.runtime." + room)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print(sorted({"jax", "jaxlib", "numpy"} & set(sys.modules)))
"""


def test_controller_packages_are_imported_without_jax() -> None:
    with processes_from_nothing():
        done = run_python("-c", SCRIPT)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
