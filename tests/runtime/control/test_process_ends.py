"""Programs handle forks, threads that outlive the main thread, dropped interrupts and any `BaseException`."""

from pathlib import Path

import pytest
from support.processes import run_python

PROGRAM = """
import os, signal, sys, threading, warnings
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
f = jax.jit(lambda x: x * 2 + x.sum(), in_shardings=NamedSharding(mesh, P("x")))
p, q = pw.program(lambda x: f(x)), pw.program(lambda x: f(x) + 1)
x = np.ones(8, np.float32)
"""


def test_every_call_in_a_forked_child_raises_an_error_at_once() -> None:
    code = """
warnings.simplefilter("ignore")
y = p(x)
y.block_until_ready()
child = os.fork()
if not child:
    calls = (lambda: p(x), lambda: q(x), lambda: q.lower(x), lambda: np.asarray(y), lambda: y.block_until_ready(),
             pw.status, lambda: pw.Client("a").__enter__(), lambda: pw.save([y], os.devnull))
    for call in calls:
        try:
            call()
        except pw.PathwaysError as error:
            print(error.code, end=" ", flush=True)
    del y
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(np.asarray(p(x))[0]), flush=True)
child = os.fork()
if not child:
    sys.exit(0)  # JAX's own destructors may fail here; what counts is that nothing waits
os.waitpid(child, 0)
"""
    done = run_python("-c", PROGRAM + code)
    assert (done.returncode, done.stdout) == (0, "PWC0520 " * 8 + "7 10.0\n"), done.stderr


@pytest.mark.parametrize("compiled", [False, True])
def test_a_thread_runs_programs_after_the_main_thread_has_ended(compiled: bool) -> None:
    code = """
main = threading.main_thread()
def work():
    main.join()
    print(np.asarray(p(x))[0], np.asarray(q(x))[0], flush=True)
threading.Thread(target=work).start()
"""
    done = run_python("-c", PROGRAM + ("p(x)\n" if compiled else "") + code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.0 11.0\n", "")


def test_an_interrupt_that_python_drops_in_a_destructor_is_raised_again() -> None:
    code = """
class Dropping:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            pass

class Raising:
    def __del__(self):
        raise KeyboardInterrupt

p(x)
for kind in (Dropping, Raising):
    try:
        held = kind()
        del held
        threading.Event().wait(60)
        print("lost")
    except KeyboardInterrupt:
        print("came")
"""
    done = run_python("-c", PROGRAM + code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "came\ncame\n", "")


@pytest.mark.long("more exceptions of the same kind", keep=("KeyboardInterrupt()",))
@pytest.mark.parametrize("kind", ["SystemExit(3)", "KeyboardInterrupt()", "GeneratorExit()", "Own('why')"])
def test_every_exception_of_a_callback_fails_the_run(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    code = f"""
class Own(BaseException): pass
def back(v):
    raise {kind}
r = pw.program(lambda x: f(jax.pure_callback(back, jax.ShapeDtypeStruct((8,), np.float32), f(x))))
try:
    np.asarray(r(x))
except pw.PathwaysError as error:
    print(error.code, "in back" in str(error), {kind.split("(")[0]!r} in str(error))
print(np.asarray(p(x))[0])
"""
    script.write_text(PROGRAM + code)
    done = run_python(str(script))
    assert (done.returncode, done.stdout) == (0, "PWC0504 True True\n10.0\n"), done.stderr


def test_devices_that_need_more_threads_than_can_start_are_refused() -> None:
    """XLA aborts a process in which it cannot start a thread."""
    code = """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), -1))
many = pw.make_virtual_device_set().add_slice(devices=800).mesh("x")
g = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(many, P("x")))
try:
    pw.program(lambda x: g(x))(np.ones(800, np.float32))
except pw.PathwaysError as error:
    print(error.code, "6,400 threads for 1600 CPU devices" in str(error))
print(np.asarray(p(x))[0])
"""
    done = run_python("-c", PROGRAM + code)
    assert (done.returncode, done.stdout) == (0, "PWC0503 True\n10.0\n"), done.stderr
