"""Tests that an unmodified flax script trains on the devices of a proxy as on its own, also if it is killed."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters import PATIENCE
from support.processes import ROOT

import pathways as pw

STEPS = 3
FLAGS = os.environ["XLA_FLAGS"]
LOCAL = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{FLAGS} --xla_force_host_platform_device_count=8"}


def trainer(folder: Path, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    words = [sys.executable, str(ROOT / "tests/support/flax_trainer.py"), str(folder), str(STEPS)]
    variables = {**os.environ, **environment}
    return subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    said, _ = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == 0
    return said.splitlines()


@pytest.mark.long("a flax script trains three times, with a checkpoint at each step: 40 s")
def test_a_flax_script_trains_and_resumes_as_on_local_devices(tmp_path: Path) -> None:
    """All devices are those of one process: between processes, XLA adds up the terms of a sum in another order."""
    with trainer(tmp_path / "local", LOCAL) as alone:
        wanted = lines_of(alone)
    assert len(wanted) == STEPS
    with pw.proxy(devices=8) as served:
        with trainer(tmp_path / "proxied", served.environment) as killed:
            assert killed.stdout is not None
            begun = [killed.stdout.readline().strip() for _ in range(2)]
            killed.kill()
        with trainer(tmp_path / "proxied", served.environment) as resumed:
            rest = lines_of(resumed)
    assert begun == wanted[:2]
    assert 0 < len(rest) < STEPS and rest == wanted[-len(rest) :]
