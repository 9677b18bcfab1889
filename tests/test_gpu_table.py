"""`make gpu` runs nothing without a GPU, and selects its programs by the number of GPUs."""

from pathlib import Path

import pytest
from support.processes import load_file, run_python


def test_without_a_gpu_nothing_runs(root: Path) -> None:
    done = run_python(str(root / "bench" / "gpu.py"), JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no GPU here") and done.stdout.endswith(": nothing to run\n")


@pytest.mark.long("programs run on several clients of one device: 7 s")
def test_a_device_can_be_split_into_several_islands(root: Path) -> None:
    """Values of the programs move between several clients of one device."""
    script = str(root / "bench" / "gpu.py")
    done = run_python(script, "--pretend", "1", "--split", "3", "--programs", "2", "--only", "random_programs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "split in 3" in done.stdout and "| islands of one device: 3 | 2 programs equal plain JAX |" in done.stdout
    assert "one island" not in done.stdout


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 8, 72])
def test_slices_are_limited_to_the_available_devices(count: int, root: Path) -> None:
    rows = list(load_file(root / "bench" / "gpu.py").rows(count))
    for row in rows:
        slices = [min(row.size, devices) for devices in row.task.slices]
        room = row.islands if row.islands else count
        assert bool(row.missing) == (sum(slices) > room), row
        assert row.islands in (0, count) and (row.size == 1 or not row.islands)
    assert {r.task.name for r in rows if not r.missing} >= {"chain", "pipeline"}
    assert not [r for r in rows if r.missing] or count < 6
