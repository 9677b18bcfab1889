"""Tests unmodified JAX programs as clients of a proxy, over an island of two host processes and in one process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_replaced, pid_of, send
from support.codes import code_of
from support.processes import ROOT
from support.proxy_client import held_bytes, raw_client
from support.unmodified_jax import FEATURES

import pathways as pw
from pathways.ifrt_proxy.serving import Proxy

INVALID, UNKNOWN, UNIMPLEMENTED = 3, 5, 12
"""The status codes INVALID_ARGUMENT, NOT_FOUND and UNIMPLEMENTED."""
RPC_ERROR: Any = grpc.RpcError
NAMES = [f.__name__ for f in FEATURES]
TRIED = tuple(NAMES[::2])


@pytest.fixture(scope="module")
def served() -> Iterator[Proxy]:
    with pw.cluster("islands=1,hosts=2,devices=2"), pw.proxy() as served:
        yield served


def environment(served: Proxy) -> dict[str, str]:
    return {**os.environ, **served.environment, "PYTHONPATH": f"{ROOT / 'tests'}"}


@pytest.fixture(scope="module")
def failed(served: Proxy, thorough: bool) -> dict[str, str]:
    """Runs the program once, with every second feature if few tests run; returns the reasons of failed features."""
    words = [sys.executable, "-m", "support.unmodified_jax", *([] if thorough else TRIED)]
    done = subprocess.run(words, env=environment(served), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long("more examples of the same kind", keep=TRIED)
@pytest.mark.parametrize("feature", NAMES)
def test_an_unmodified_program_uses_the_devices_of_a_cluster(feature: str, failed: dict[str, str]) -> None:
    assert feature not in failed, failed[feature]


def test_a_killed_client_leaves_nothing_and_disturbs_nobody(served: Proxy) -> None:
    code = "import jax; x = jax.numpy.ones(1 << 20).block_until_ready(); print('made', flush=True); input()"
    words = [sys.executable, "-c", code]
    with raw_client(served.address) as other:
        with subprocess.Popen(
            words,
            env=environment(served),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as client:
            assert client.stdout is not None and client.stdout.readline() == "made\n"
            assert held_bytes() >= 4 << 20
            client.send_signal(signal.SIGKILL)
        assert becomes(lambda: held_bytes() == 0)
        assert other.code_of(get_default_device_assignment_request={"num_replicas": 1, "num_partitions": 2}) == 0


LOOP = """
import sys, jax
f = jax.jit(lambda v: v * 2 + 1)
for line in sys.stdin:
    try:
        print(f(jax.numpy.ones(2)), flush=True)
    except Exception as error:
        print("PWC0910" in str(error), flush=True)
"""


@contextmanager
def looping(served: Proxy) -> Generator[Callable[[], str]]:
    """Starts a program that computes once for each line that it reads. Yields a function that returns the answer."""
    with subprocess.Popen(
        [sys.executable, "-c", LOOP],
        env=environment(served),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        stdin, stdout = client.stdin, client.stdout

        def compute() -> str:
            stdin.write("\n")
            stdin.flush()
            return stdout.readline().strip()

        yield compute
        stdin.close()


def test_a_plan_stays_usable_after_the_session_that_compiled_it(served: Proxy) -> None:
    with looping(served) as second:
        with looping(served) as first:
            assert first() == "[3. 3.]"
        assert second() == "[3. 3.]"


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_session_continues_after_its_host_was_killed() -> None:
    with pw.cluster("islands=1,devices=1"), pw.proxy() as served, looping(served) as compute:
        assert compute() == "[3. 3.]"
        old = pid_of("island0")
        send("island0", signal.SIGKILL)
        assert compute() in ("True", "[3. 3.]")
        assert becomes(lambda: is_replaced("island0", old))
        assert becomes(lambda: compute() == "[3. 3.]")


def test_a_proxy_without_a_cluster_serves_devices_of_its_own_process() -> None:
    with pw.proxy(devices=4) as served, raw_client(served.address) as client:
        assert served.devices == 4 and client.code_of(get_default_layout_request={"dims": [2, 3]}) == 0


def test_programs_and_unmodified_scripts_share_a_cluster(served: Proxy) -> None:
    """Both run on the same devices at the same time, and each computes what it computes alone."""
    loop = "for _ in range(200): x = jax.jit(lambda v: v / 2 + 1)(x)"
    code = f"import jax; x = jax.numpy.arange(8.0)\n{loop}\nprint(x.sum())"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, env=environment(served), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as client:
        mesh = pw.make_virtual_device_set().add_slice(devices=4).mesh("x")
        double: Any = jax.jit(lambda v: v * 2 + 1, in_shardings=NamedSharding(mesh, P("x")))
        step = pw.program(double)
        while client.poll() is None:
            np.testing.assert_array_equal(np.asarray(step(np.arange(8.0, dtype=np.float32))), np.arange(8.0) * 2 + 1)
        assert client.stdout is not None and client.stdout.read() == "16.0\n"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.1.2.3:0", "example.com:0", "[::]:0"])
def test_an_address_that_other_machines_reach_is_refused(listen: str) -> None:
    assert code_of(pw.proxy(listen).__enter__) == "PWC0943"


@pytest.mark.parametrize("options", [{"listen": "29000"}, {"listen": "127.0.0.1:x"}, {"listen": "127.0.0.1:70000"}])
def test_a_malformed_address_is_refused(options: dict[str, Any]) -> None:
    assert code_of(pw.proxy(**options).__enter__) == "PWC0104"


@pytest.mark.parametrize("options", [{"island": "nowhere"}, {"devices": 5}])
def test_unknown_devices_are_refused(options: dict[str, Any], served: Proxy) -> None:
    assert code_of(pw.proxy(**options).__enter__) == "PWC0104"


def test_a_proxy_without_hpack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpack", None)
    assert code_of(pw.proxy().__enter__) == "PWC0942"
