"""Tests that defining a program imports no passes, solvers or pictures. They take long to import, and only compilation
needs them.
"""

from support.forked_python import processes_from_nothing
from support.processes import run_python

SCRIPT = """
import sys, pathways as pw
pw.make_virtual_device_set().add_slice(devices=2)
pw.program(lambda x: x)
ours = ("compiler.driver", "compiler.frontends.jax.trace", "compiler.simulate", "viz")
late = {"scipy.optimize", *("pathways." + name for name in ours)}
print(sorted(late & set(sys.modules)))
"""


def test_a_program_is_defined_without_passes_solvers_and_pictures() -> None:
    with processes_from_nothing():
        done = run_python("-c", SCRIPT)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
