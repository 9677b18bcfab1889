"""Tests clusters of timed hosts: each call occupies its devices for the stated time, in the order of the data, through
the real controller, hosts and streams.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathways as pw
from pathways.dialect.topology import Island, Topology
from pathways.viz.actual import DeviceRow, read_trace

SECONDS = {"double": 0.02, "halve": 0.03}


def double(x: Any) -> Any:
    return x * 2.0


def halve(x: Any) -> Any:
    return x / 2.0


def mean(x: Any) -> Any:
    return jax.lax.pmean(x, "i")


def rows_of(path: Path) -> list[DeviceRow]:
    (run,) = read_trace(path)
    return [row for row in run.rows if row.cells]


def test_calls_occupy_their_devices_for_their_time(tmp_path: Path) -> None:
    """Two calls on one island, then one on another, whose value returns to this process as zeros."""
    topology = Topology((Island("a", 2, call_us=10.0), Island("b", 2, call_us=10.0)), dcn_us=100.0)
    with pw.cluster(topology, timed=SECONDS):
        devices = pw.make_virtual_device_set()
        here, there = (devices.add_slice(devices=2) for _ in range(2))
        one, other = jax.pmap(double, devices=here.tpus), jax.pmap(halve, devices=there.tpus)
        step = pw.program(lambda x: other(one(one(x)))).lower(np.ones(2, np.float32)).compile(merge=False)
        x = np.ones(2, np.float32)
        assert np.array_equal(np.asarray(step(x)), np.zeros(2))
        with pw.trace(tmp_path / "trace.json"):
            np.asarray(step(x))
    rows = rows_of(tmp_path / "trace.json")
    assert [[cell.name for cell in row.cells] for row in rows] == [["double"] * 2] * 2 + [["halve"]] * 2
    for cell in (cell for row in rows for cell in row.cells):
        assert cell.end - cell.begin == pytest.approx(SECONDS[cell.name], abs=2e-6)
    (first, second), third = rows[0].cells, rows[2].cells[0]
    assert second.begin >= first.end - 2e-6 and third.begin >= second.end + 98e-6  # the network takes 100 us


def test_hosts_of_one_island_begin_a_launch_together(tmp_path: Path) -> None:
    with pw.cluster("islands=1,hosts=4,devices=2", timed={"mean": 0.01}):
        devices = pw.make_virtual_device_set().add_slice(devices=8)

        step = jax.pmap(mean, axis_name="i", devices=devices.tpus)
        program = pw.program(lambda x: step(step(x))).lower(np.ones(8, np.float32)).compile(merge=False)
        x = np.ones(8, np.float32)
        assert np.array_equal(np.asarray(program(x)), np.zeros(8))
        with pw.trace(tmp_path / "trace.json"):
            np.asarray(program(x))
    rows = rows_of(tmp_path / "trace.json")
    times = [[(cell.begin, cell.end) for cell in row.cells] for row in rows]
    assert len(times) == 8 and times == times[:1] * 8
    assert [end - begin for begin, end in times[0]] == pytest.approx([0.01, 0.01], abs=2e-6)


def test_values_move_between_hosts_of_one_island() -> None:
    """Resharding to other devices of an island, some on other hosts of it."""
    with pw.cluster("islands=1,hosts=2,devices=4", timed=True):
        devices = pw.make_virtual_device_set()
        first, last = (devices.add_slice(devices=4) for _ in range(2))
        one, other = jax.pmap(double, devices=first.tpus), jax.pmap(halve, devices=last.tpus)
        program = pw.program(lambda x: (other(one(x)), one(x)))
        assert np.array_equal(np.asarray(program(np.ones(4, np.float32))[0]), np.zeros(4))


def test_host_callbacks_are_refused() -> None:
    with pw.cluster("islands=1,devices=1", timed=True):
        devices = pw.make_virtual_device_set().add_slice(devices=1)

        def call(x: Any) -> Any:
            return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)

        program = pw.program(lambda x: jax.pmap(call, devices=devices.tpus)(x))
        with pytest.raises(pw.PathwaysError) as refused:
            program(np.ones(1, np.float32))
        assert refused.value.code == "PWC0912"


@pytest.mark.long("more invalid values: 1 s each", keep=("nan",))
@pytest.mark.parametrize("seconds", [-1.0, float("nan"), "fast"])
def test_invalid_seconds_are_refused_at_the_call(seconds: Any) -> None:
    with pw.cluster("islands=1,devices=1", timed={"double": seconds}):
        devices = pw.make_virtual_device_set().add_slice(devices=1)
        program = pw.program(lambda x: jax.pmap(double, devices=devices.tpus)(x))
        with pytest.raises(pw.PathwaysError) as refused:
            program(np.ones(1, np.float32))
        assert refused.value.code == "PWC0309"


def test_an_island_cannot_be_added() -> None:
    with pw.cluster("islands=1,devices=1", timed=True):
        with pytest.raises(pw.PathwaysError) as refused:
            pw.add_island("devices=1")
        assert refused.value.code == "PWC0912"


def test_times_that_are_no_mapping_are_refused() -> None:
    wrong: Any = "fast"
    with pytest.raises(pw.PathwaysError) as refused, pw.cluster(timed=wrong):
        pass
    assert refused.value.code == "PWC0104"


def test_a_lost_island_is_started_again() -> None:
    with pw.cluster("islands=2,devices=1", timed=True):
        devices = pw.make_virtual_device_set().add_slice(devices=1)
        step = pw.program(lambda x: jax.pmap(double, devices=devices.tpus)(x))
        x = np.ones(1, np.float32)
        step(x).block_until_ready()
        with pw.testing.fault(kind="lose", computation="double"), pytest.raises(pw.PathwaysError):
            step(x).block_until_ready()
        assert np.asarray(step(x)) == 0.0
