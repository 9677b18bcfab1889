"""`pwc doctor`"""

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import click

from pathways.cli.errors import NotWell
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named

_EXAMPLE = """
\b
Examples:
  pwc doctor
  JAX_PLATFORMS=cpu pwc doctor
"""
CHECK_SECONDS = 60
"""Seconds: a check that takes longer is said to hang."""
OLDEST, FIRST_UNTRIED = (0, 10), (0, 13)

Answer: TypeAlias = tuple[str, str]
"""A finding, and the advice on it: empty where all is well."""


@dataclass(frozen=True)
class Check:
    name: str
    ask: Callable[[], Answer]


@click.command("doctor", epilog=_EXAMPLE)
def doctor() -> None:
    """Check Python, JAX and the devices, run a program over two slices, and say what to do.

    Each check of devices runs in a process of its own: one that crashes or hangs is a finding. Exit code 3 if something
    is not well.
    """
    bad = 0
    for check in CHECKS:
        found, advice = check.ask()
        click.echo(f"{'ok  ' if not advice else 'BAD '} {check.name:10} {found}")
        if advice:
            click.echo(f"     {'try':10} {advice}")
            bad += 1
    if bad:
        raise PathwaysError(NotWell(count=bad))


def _python() -> Answer:
    found = f"{platform.python_version()} ({sys.executable})"
    return found, "" if sys.version_info >= (3, 11) else "Python 3.11 or newer"


def _jax() -> Answer:
    versions = {name: _version(name) for name in ("jax", "jaxlib")}
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    number = tuple(int(p) for p in (versions["jax"] or "0.0").split(".")[:2])
    if None in versions.values() or not OLDEST <= number < FIRST_UNTRIED:
        return found, "pip install 'jax>=0.10,<0.13'"
    return found, "" if number == tuple(int(p) for p in (versions["jaxlib"] or "0.0").split(".")[:2]) else (
        f"pip install jaxlib=={versions['jax']}: jax and jaxlib belong together"
    )


def _plugins() -> Answer:
    """Checks that PJRT plugins are of jaxlib's version: otherwise loading them fails or crashes."""
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
alone = not at_will and len(jax.devices()) == 1
slices = [made.add_slice(devices=count) for _ in range(1 if alone else 2)]
first, last = (NamedSharding(s.mesh("x"), P("x")) for s in (slices[0], slices[-1]))
double = jax.jit(lambda x: 2 * x, in_shardings=first)
total = jax.jit(lambda x: x.sum(), in_shardings=last)
program = pw.program(lambda x: total(double(x)))
assert float(program(np.arange(8.0))) == 56
begin = time.perf_counter()
float(program(np.arange(8.0)))
what = "one slice of the only device" if alone else f"two slices of {count}, a transfer"
print(f"{what}, right: {1e3 * (time.perf_counter() - begin):.1f} ms a run")
"""


def _in_own_process(source: str, advice: str) -> Answer:
    try:
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer for {CHECK_SECONDS} s", advice
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return lines[-1], ""
    said = done.stderr.strip().splitlines()
    died = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return (said[-1] if said else died), advice


def _platform() -> Answer:
    """Shows what this project knows of the platform: its row in dialect/platforms.py."""
    name, advice = _in_own_process("import jax; print(jax.default_backend())", "see the check of devices")
    if advice:
        return name, advice
    row = platform_named(name)
    known = [
        f"tried on {row.tried}" if row.tried else "never tried by this project",
        "devices made at will" if row.made_at_will else "the devices of the host",
        f"{row.in_flight} executions in flight a device",
        f"gangs up to {row.apart} started apart" if row.apart else "gangs started at once",
        "hangs proved" if row.on_host else "hangs suspected",
        "faults by callback" if row.callback else "no faults by callback",
    ]
    return f"{row.name}: {', '.join(known)}", ""


CHECKS: tuple[Check, ...] = (
    Check("python", _python),
    Check("jax", _jax),
    Check("plugins", _plugins),
    Check("devices", lambda: _in_own_process(_DEVICES, "JAX_PLATFORMS=cpu, or the driver and plugin of your device")),
    Check("platform", _platform),
    Check("run", lambda: _in_own_process(_TWO_SLICES, "pwc explain CODE for an error with a code; else file a bug")),
)
