"""Tests that `pwc proxy` prints what a JAX program needs, serves until it is interrupted, and leaves nothing behind."""

import signal
import subprocess
import sys

import pytest
from support.processes import pwc_here
from support.proxy_client import raw_client

PWC = (sys.executable, "-c", "from pathways.cli.main import main; main(prog_name='pwc')")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_serves_until_it_is_interrupted(how: signal.Signals) -> None:
    words = (*PWC, "proxy", "islands=1,devices=2", "--listen", "127.0.0.1:0")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "serving 2 devices of island0; run a JAX program with these variables:\n"
            export, *variables = server.stdout.readline().split()
            assert export == "export" and variables[0] == "JAX_PLATFORMS=proxy,cpu"
            with raw_client(variables[1].removeprefix("JAX_BACKEND_TARGET=grpc://")) as client:
                assert client.code_of(get_default_layout_request={"dims": [2]}) == 0
            server.send_signal(how)
            assert server.wait(60) == 0
        finally:
            server.kill()


def test_a_topology_and_an_address_exclude_each_other() -> None:
    code, _, err = pwc_here("proxy", "islands=1,devices=1", "--address", "default")
    assert code == 2 and "exclude each other" in err


def test_an_open_address_is_refused_with_its_exit_code() -> None:
    code, _, err = pwc_here("proxy", "islands=1,devices=1", "--listen", "0.0.0.0:29000")
    assert code == 2 and "PWC0943" in err
