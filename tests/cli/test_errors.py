"""Tests that invalid input gives a coded error with have / need / try, an exit code, and no traceback."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.processes import pwc, pwc_here

HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import pathways as pw

devices = pw.make_virtual_device_set()
two, four = devices.add_slice(devices=2), devices.add_slice(devices=4)
m2, m4 = two.mesh("x"), four.mesh("y")
on2, on4 = NamedSharding(m2, P("x")), NamedSharding(m4, P("y"))
f2, f4 = (jax.jit(lambda x: x + 1, in_shardings=s) for s in (on2, on4))
X = np.arange(8, dtype=np.float32)
"""

PROGRAMS: dict[str, tuple[str, str, int]] = {
    "debug.print": ("jax.debug.print('{}', x, ordered=True); return f2(x)  # here", "PWC0102", 3),
    "io_callback": (
        "from jax.experimental import io_callback\n    return f2(io_callback(np.sin, x, x, ordered=True))  # here",
        "PWC0102",
        3,
    ),
    "two slices in one jit": (
        "return jax.jit(lambda v: v, in_shardings=on2, out_shardings=on4)(x)  # here",
        "PWC0204",
        3,
    ),
    "a mesh over two slices": (
        "m = Mesh(np.array(two.devices + four.devices), ('z',))\n"
        "    return jax.device_put(x[:6], NamedSharding(m, P('z')))  # here",
        "PWC0204",
        3,
    ),
    "not divisible": ("return jax.device_put(x[:5], on4)  # here", "PWC0203", 3),
    "pinned memory": ("return jax.device_put(x, on2.with_memory_kind('pinned_host'))  # here", "PWC0102", 3),
    "the value of an array": ("return f2(x) if x.sum() > 0 else x  # here", "PWC0103", 3),
    "no array returned": ("return 'text'  # here", "PWC0103", 3),
}


def write(folder: Path, body: str, head: str = HEAD) -> Path:
    path = folder / "model.py"
    path.write_text(f"{head}\n\n@pw.program(example_args=(X,))\ndef step(x):\n    {body}\n")
    return path


def assert_coded_error(stderr: str, code: str) -> None:
    """Asserts that stderr has a coded error with all its labels, and no traceback."""
    assert f"error[{code}]" in stderr
    assert "Traceback" not in stderr
    for label in ("have:", "need:", "try:"):
        assert label in stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_invalid_programs_are_refused_at_the_users_line(name: str, tmp_path: Path) -> None:
    body, code, exit_code = PROGRAMS[name]
    path = write(tmp_path, body)
    got, _, stderr = pwc_here("compile", str(path))
    assert_coded_error(stderr, code)
    assert got == exit_code
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "# here" in text)
    if name not in ("no array returned",):
        assert f"{path}:{line}" in stderr


MODULES: dict[str, tuple[str, str, int]] = {
    "mesh too large": ("two.mesh(('a', 'b'), (2, 2))", "PWC0201", 3),
    "no devices": ("devices.add_slice()", "PWC0104", 2),
    "a topology of another size": ("devices.add_slice(devices=4, topology=(3, 2))", "PWC0104", 2),
    "no program": ("del step", "PWC0801", 2),
    "two programs": ("other = pw.program(lambda x: x)", "PWC0801", 2),
    "no example": ("step = pw.program(lambda x: x)", "PWC0104", 2),
    "raises": ("raise KeyError('mine')", "PWC0802", 1),
    "syntax": ("1 +", "PWC0802", 1),
    "a use outside": ("f2(X)", "PWC0101", 3),
}


@pytest.mark.parametrize("name", MODULES)
def test_invalid_sources_are_refused(name: str, tmp_path: Path) -> None:
    statement, code, exit_code = MODULES[name]
    path = write(tmp_path, "return f2(x)")
    path.write_text(path.read_text() + f"\n\n{statement}  # here\n")
    got, _, stderr = pwc_here("compile", str(path))
    assert_coded_error(stderr, code)
    assert got == exit_code


def test_slices_that_do_not_fit_the_topology_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "return f4(f2(x))")
    for topology in ("devices=2", "islands=3,devices=3", "islands=1,hosts=1,devices=5"):
        got, _, stderr = pwc_here("compile", str(path), "--topology", topology)
        assert_coded_error(stderr, "PWC0301")
        assert got == 5 and "s1: 4 devices" in stderr
    assert pwc_here("compile", str(path), "--topology", "islands=1,devices=6")[0] == 0
    got, _, stderr = pwc_here("compile", str(path), "--placement", "pinned")
    assert got == 3 and "PWC0306" in stderr


@pytest.mark.parametrize(
    "spec", ["islands", "islands=0,devices=2", "devices=x", "devices=2,colour=red", "islands=2", "no.toml"]
)
def test_invalid_topologies_are_refused(spec: str, tmp_path: Path) -> None:
    got, _, stderr = pwc_here("compile", str(write(tmp_path, "return f2(x)")), "--topology", spec)
    assert_coded_error(stderr, "PWC0704")
    assert got == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--input", "x=1.5"], "PWC0501"),
        (["--input", "x=[1, 2, 3]"], "PWC0501"),
        (["--input", "y=1"], "PWC0803"),
        (["--input", "x"], "PWC0803"),
        (["--input", "x=@nothing.npy"], "PWC0803"),
        (["--inputs", "nothing.npz"], "PWC0803"),
    ],
)
def test_invalid_inputs_are_refused(arguments: list[str], code: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    assert pwc_here("compile", str(write(tmp_path, "return f2(x)")), "-o", str(plan))[0] == 0
    got, _, stderr = pwc_here("run", str(plan), *arguments)
    assert_coded_error(stderr, code)
    assert got == 2


def test_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "return f2(x)")
    ir = tmp_path / "ir.mlir"
    ir.write_text("module {}")
    broken = tmp_path / "broken.mlir"
    broken.write_text("modul")
    for arguments, code, exit_code in (
        (["run", str(tmp_path / "none.bin")], "PWC0601", 3),
        (["inspect", str(source)], "PWC0601", 3),
        (["compile", str(tmp_path / "none.py")], "PWC0801", 2),
        (["compile", str(ir)], "PWC0104", 2),
        (["compile", str(broken)], "PWC0702", 3),
        (["opt", str(broken)], "PWC0702", 3),
    ):
        got, _, stderr = pwc_here(*arguments)
        assert_coded_error(stderr, code)
        assert got == exit_code, arguments


def test_files_that_cannot_be_written_or_read_are_reported(tmp_path: Path) -> None:
    source, plan = write(tmp_path, "return f2(x)"), tmp_path / "plan.bin"
    assert pwc_here("compile", str(source), "-o", str(plan))[0] == 0
    array, inputs = tmp_path / "x.npy", tmp_path / "in.npz"
    np.save(array, np.ones(8, np.float32))
    np.savez(inputs, x=np.ones(8, np.float32))
    for arguments, code in (
        (["compile", str(source), "-o", "/nowhere/plan.bin"], "PWC0606"),
        (["compile", str(source), "--dump-phases-to", "/proc/nothing"], "PWC0606"),
        (["run", str(plan), "--inputs", str(inputs), "--outputs", "/nowhere/out.npz"], "PWC0606"),
        (["run", str(plan), "--inputs", str(inputs), "--outputs", str(tmp_path / "out.txt")], "PWC0606"),
        (["run", str(plan), "--inputs", str(array)], "PWC0803"),
        (["opt", str(tmp_path)], "PWC0801"),
    ):
        got, _, stderr = pwc_here(*arguments)
        assert_coded_error(stderr, code)
        assert got == 2
    got, _, stderr = pwc_here("run", str(plan), "--input", "x=[0, 1, 2, 3, 4, 5, 6, 7]")
    assert got == 0, stderr


def test_options_of_phases_already_passed_are_refused(tmp_path: Path) -> None:
    source, dumps = write(tmp_path, "return f2(x)"), tmp_path / "dumps"
    assert pwc_here("compile", str(source), "--dump-phases-to", str(dumps))[0] == 0
    for option in (["--topology", "devices=8"], ["--placement", "pinned"], ["--compile-to", "trace"]):
        got, _, stderr = pwc_here("compile", str(dumps / "04.transfer.mlir"), *option)
        assert_coded_error(stderr, "PWC0801")
        assert got == 2 and option[0] in stderr
    typo = (dumps / "01.trace.mlir").read_text().replace('"pw.call"', '"pw.cal"')
    got, _, stderr = pwc_here("opt", "-", stdin=typo)
    assert_coded_error(stderr, "PWC0701")
    assert got == 3 and "not an op of this dialect" in stderr


def test_a_refused_program_exits_without_a_traceback_or_signal(tmp_path: Path) -> None:
    """Runs `pwc` in a separate process, which exits with a code and a message."""
    done = pwc("compile", str(write(tmp_path, PROGRAMS["debug.print"][0])))
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert re.search(r"error\[PWC0102\].*\n +--> .*model\.py:\d+", done.stderr)
