"""Tests that a picture finds the recorded runs of its program when its process has other islands."""

from pathlib import Path

import numpy as np

import pathways as pw
from pathways.api.process import Process, inside_of
from pathways.dialect.topology import Island
from pathways.runtime.client.controller import Controller
from pathways.runtime.host.devices.islands import Machine


def test_runs_are_found_on_an_island_whose_name_has_several_sizes(tmp_path: Path) -> None:
    """The trace names such an island with its size, the plan without it."""
    machine = Machine("cpu")
    machine.bound([Island("island0", devices=2)], "another program")
    program, value = pw.program(lambda x: x + 1), np.ones(2, np.float32)
    with inside_of(Process("cpu", Controller(machine))):
        with pw.trace(tmp_path / "t.json"):
            program(value)
        picture = program.lower(value).compile().visualize(trace=tmp_path / "t.json")
    assert [i.key for i in machine.islands] == ["island0", "island0(1)"]
    assert [[row.island for row in run.rows] for run in picture.runs] == [["island0"]]
