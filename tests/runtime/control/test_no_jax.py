"""Who decides what runs where, and when, needs no JAX: a controller of its own is small, and starts soon."""

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


def test_the_rooms_of_the_controller_are_imported_without_jax() -> None:
    done = run_python("-c", SCRIPT)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
