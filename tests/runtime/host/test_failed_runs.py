"""Tests that an unexpected error while a host enqueues a run fails that run alone, and leaves no run in flight."""

from support.processes import ROOT, run_python

SCRIPT = """
import gc
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
from pathways.api.process import inside_of, process
from pathways.runtime.host import host as tested
from support.encoded import encoded_process

place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
f = jax.jit(lambda x: x + 1, in_shardings=place, out_shardings=place)
program, x, drive = pw.program(lambda x: f(x)), np.arange(4.0, dtype=np.float32), tested.drive

def fails(waves, frame, run):
    yield from drive(waves, frame, run)
    raise AttributeError("not foreseen")

with inside_of(encoded_process(process().platform)):
    np.asarray(program(x))
    tested.drive = fails
    lost = program(x)
    try:
        np.asarray(lost)
    except pw.PathwaysError as error:
        print(error.code, "not foreseen" in str(error))
    tested.drive = drive
    print(np.array_equal(np.asarray(program(x)), x + 1))
    (host,) = [each for each in gc.get_objects() if isinstance(each, tested.Host)]
    print(dict(host._flights.enqueuing), host.decisions._runs, process().controller.flights.drain(60))
"""


def test_an_unexpected_error_fails_the_run_alone() -> None:
    done = run_python("-c", SCRIPT, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    assert done.stdout.splitlines() == ["PWC0504 True", "True", "{} {} True"], done.stderr
    assert "AttributeError: not foreseen" in done.stderr
