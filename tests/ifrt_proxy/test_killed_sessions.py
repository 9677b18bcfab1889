"""Tests that sessions on two islands that are killed at random moments disturb no other session, and leave nothing."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import TypeAlias

import pytest
from support.clusters import becomes
from support.processes import ROOT
from support.proxy_client import held_bytes

import pathways as pw
from pathways.ifrt_proxy.serving import Proxy

SESSIONS = 8
SECONDS = float(os.environ.get("PATHWAYS_TEST_KILL_SECONDS", "10"))
"""Seconds during which sessions are killed; a longer test by hand takes five minutes."""
Client: TypeAlias = "subprocess.Popen[bytes]"


def start(served: Proxy, seed: int) -> Client:
    words = [sys.executable, str(ROOT / "tests/support/checked_client.py"), str(seed)]
    variables = {**os.environ, **served.environment}
    return subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed(client: Client) -> int:
    """Kills a client; returns how many rounds it had compared. Fails if it had ended by itself."""
    client.send_signal(signal.SIGKILL)
    said, errors = client.communicate()
    assert client.returncode == -signal.SIGKILL, errors.decode()
    return len(said.splitlines())


@pytest.mark.long("eight JAX programs run and are killed at random moments: 30 s")
def test_killed_sessions_disturb_no_others_and_leave_nothing() -> None:
    rng, rounds = random.Random(1), 0
    with ExitStack() as stack:
        stack.enter_context(pw.cluster("islands=2,devices=2"))
        proxies = [stack.enter_context(pw.proxy(island=f"island{n}")) for n in range(2)]
        clients = [start(proxies[n % 2], n) for n in range(SESSIONS)]
        for client in clients:
            assert client.stdout is not None and client.stdout.readline(), killed(client)
        seeds, until = iter(range(SESSIONS, 1 << 30)), time.monotonic() + SECONDS
        while time.monotonic() < until:
            threading.Event().wait(rng.uniform(0, 3))
            place = rng.randrange(SESSIONS)
            rounds += killed(clients[place])
            clients[place] = start(proxies[place % 2], next(seeds))
        rounds += sum(map(killed, clients))
        assert rounds > 0
        assert becomes(lambda: held_bytes() == 0)
        assert becomes(lambda: not any(t.name.startswith("pathways-jax-") for t in threading.enumerate()))
