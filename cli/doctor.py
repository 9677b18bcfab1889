"""Implements `pwc doctor`, which checks the installation on this machine: Python, JAX, plugins and devices. It also
compiles and runs small programs, and says what to do about each problem.
"""

import functools
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import click

from pathways.cli.errors import NotWell
from pathways.cli.json_output import json_option, print_json
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named

_EXAMPLE = """
\b
Examples:
  pwc doctor
  pwc doctor --self-test        # also a plan file, a pipeline and a cluster of two processes
  JAX_PLATFORMS=cpu pwc doctor
"""
CHECK_SECONDS = 60
"""Time limit of a check, after which it is reported as hanging."""
OLDEST, FIRST_UNTRIED = (0, 10), (0, 13)

Answer: TypeAlias = tuple[str, str]
"""A finding, and the advice for it; the advice is empty if nothing is wrong."""


@dataclass(frozen=True)
class Check:
    name: str
    ask: Callable[[], Answer]


@click.command("doctor", epilog=_EXAMPLE)
@click.option("--self-test", is_flag=True, help="Also compare a plan file, a pipeline and a cluster with plain JAX.")
@json_option
def doctor(self_test: bool, as_json: bool) -> None:
    """Check Python, JAX and the devices, run a program over two slices, and print how to fix problems.

    Each check of devices runs in its own process, so that a crash or a hang is reported, too. Exit code 3 if a check
    fails.
    """
    bad = 0
    rows: list[dict[str, str]] = []
    for check in (*CHECKS, *(SELF_TESTS if self_test else ())):
        found, advice = check.ask()
        bad += bool(advice)
        if as_json:
            rows.append({"name": check.name, "state": "bad" if advice else "ok", "found": found, "try": advice})
            continue
        click.echo(f"{'ok  ' if not advice else 'BAD '} {check.name:10} {found}")
        if advice:
            click.echo(f"     {'try':10} {advice}")
    if as_json:
        print_json({"checks": rows})
    if bad:
        raise PathwaysError(NotWell(count=bad))


def _python() -> Answer:
    found = f"{platform.python_version()} ({sys.executable})"
    return found, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer"


def _jax() -> Answer:
    versions = {name: _version(name) for name in ("jax", "jaxlib")}
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    number = tuple(int(p) for p in (versions["jax"] or "0.0").split(".")[:2])
    if None in versions.values() or not OLDEST <= number < FIRST_UNTRIED:
        return found, "pip install 'jax>=0.10,<0.13'"
    return found, "" if number == tuple(int(p) for p in (versions["jaxlib"] or "0.0").split(".")[:2]) else (
        f"pip install jaxlib=={versions['jax']}: jax and jaxlib need the same version"
    )


def _plugins() -> Answer:
    """Checks that PJRT plugins match jaxlib's version: otherwise loading them fails or crashes."""
    jaxlib = _version("jaxlib") or ""
    found, wrong = list[str](), list[str]()
    for distribution in importlib.metadata.distributions():
        name = str(distribution.metadata["Name"] or "")
        if name.startswith("jax-") and ("pjrt" in name or "plugin" in name):
            found.append(f"{name} {distribution.version}")
            if distribution.version.split(".")[:2] != jaxlib.split(".")[:2]:
                wrong.append(f'"{name}=={jaxlib}"')
    return ", ".join(sorted(found)) or "none: CPU only", f"pip install {' '.join(sorted(wrong))}" if wrong else ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


_DEVICES = """
import collections, jax
kinds = collections.Counter(d.device_kind for d in jax.devices())
print(jax.default_backend() + ": " + ", ".join(f"{n} x {k}" for k, n in kinds.items()))
"""

_TWO_SLICES = """
import jax, numpy as np, pathways as pw, time
from jax.sharding import NamedSharding, PartitionSpec as P
made = pw.make_virtual_device_set()
from pathways.dialect.platforms import platform_named
at_will = platform_named(jax.default_backend()).made_at_will is not None
count = 2 if at_will or len(jax.devices()) >= 4 else 1
single = not at_will and len(jax.devices()) == 1
slices = [made.add_slice(devices=count) for _ in range(1 if single else 2)]
first, last = (NamedSharding(s.mesh("x"), P("x")) for s in (slices[0], slices[-1]))
double = jax.jit(lambda x: 2 * x, in_shardings=first)
total = jax.jit(lambda x: x.sum(), in_shardings=last)
program = pw.program(lambda x: total(double(x)))
assert float(program(np.arange(8.0))) == 56
begin = time.perf_counter()
float(program(np.arange(8.0)))
what = "one slice of the only device" if single else f"two slices of {count}, a transfer"
print(f"{what}, results correct: {1e3 * (time.perf_counter() - begin):.1f} ms a run")
"""


_PLAN_FILE = """
import os, tempfile, jax.numpy as jnp, numpy as np, pathways as pw
program = pw.program(lambda x: jnp.sin(x).sum())
x = np.arange(8, dtype=np.float32)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "plan.bin")
    program.lower(x).compile().save(path)
    assert abs(float(pw.load(path)(x)) - float(np.sin(x).sum())) < 1e-5
    print(f"a plan file of {os.path.getsize(path):,} bytes, result correct")
"""

_PIPELINE = """
import jax, jax.numpy as jnp, numpy as np, pathways as pw
def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x ** 2).mean()
params = [np.eye(4, dtype=np.float32) * (i + 1) / 2 for i in range(4)]
x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
made = pw.make_virtual_device_set()
slices = [made.add_slice(devices=1) for _ in range(2)]
step = pw.program(jax.value_and_grad(pw.pipeline(loss, slices, microbatches=2)))
for ours, plain in zip(jax.tree.leaves(step(params, x)), jax.tree.leaves(jax.value_and_grad(loss)(params, x))):
    np.testing.assert_allclose(np.asarray(ours), plain, rtol=1e-4, atol=1e-6)
print("a loss in two stages, value and gradients correct")
"""

_CLUSTER = """
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
made = pw.make_virtual_device_set()
first, last = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
double = jax.jit(lambda x: 2 * x, in_shardings=first)
total = jax.jit(lambda x: x.sum(), in_shardings=last)
with pw.cluster(islands=2, devices=1):
    assert float(pw.program(lambda x: total(double(x)))(np.arange(8.0))) == 56
print("two islands in separate processes, result correct")
"""


def _in_own_process(source: str, advice: str) -> Answer:
    try:
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer for {CHECK_SECONDS} s", advice
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return lines[-1], ""
    messages = done.stderr.strip().splitlines()
    died = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return (messages[-1] if messages else died), advice


@functools.cache
def _backend() -> Answer:
    """Returns the platform that JAX chooses. Two checks need it, and a process that asks JAX takes a second."""
    return _in_own_process("import jax; print(jax.default_backend())", "follow the advice of the check devices")


def _platform() -> Answer:
    """Shows the properties of the platform: its row in dialect/platforms.py."""
    name, advice = _backend()
    if advice:
        return name, advice
    row = platform_named(name)
    known = [
        f"tested on {row.tried}" if row.tried else "never tested by this project",
        "devices created on demand" if row.made_at_will else "the devices of the host",
        f"{row.in_flight} executions in flight a device",
        f"gangs up to {row.apart} launched device by device" if row.apart else "gangs launched whole",
        "hangs can be proved" if row.on_host else "hangs can only be suspected",
        "fault injection by host callback" if row.callback else "no fault injection by host callback",
    ]
    return f"{row.name}: {', '.join(known)}", ""


def _cluster() -> Answer:
    """Runs a program on a cluster of two processes, where processes can share the machine's devices."""
    name, advice = _backend()
    if advice or platform_named(name).made_at_will is None:
        return "not tested: two processes cannot share these devices" if not advice else name, advice
    return _in_own_process(_CLUSTER, _ADVICE)


_ADVICE = "fix failed checks above first; pwc explain CODE explains an error code; else file a bug"
CHECKS: tuple[Check, ...] = (
    Check("python", _python),
    Check("jax", _jax),
    Check("plugins", _plugins),
    Check(
        "devices",
        lambda: _in_own_process(_DEVICES, "set JAX_PLATFORMS=cpu, or install the driver and JAX plugin of your device"),
    ),
    Check("platform", _platform),
    Check("run", lambda: _in_own_process(_TWO_SLICES, _ADVICE)),
)
SELF_TESTS: tuple[Check, ...] = (
    Check("plan", lambda: _in_own_process(_PLAN_FILE, _ADVICE)),
    Check("pipeline", lambda: _in_own_process(_PIPELINE, _ADVICE)),
    Check("cluster", _cluster),
)
