"""Programs are found in files and package modules, as `python FILE` and `python -m PKG.MODULE` find them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import ROOT, pwc_here

from pathways.cli.source_spec import Source, read_spec
from pathways.dialect.plan.plan_file import load_plan

MODEL = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw
{imports}

mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
scale = jax.jit(lambda x: {factor} * x, in_shardings=NamedSharding(mesh, P("x")))


@pw.program(example_args=(np.arange(4, dtype=np.float32),))
def step(x):
    {inside}
    return scale(x)
"""


def write(path: Path, imports: str = "", factor: str = "2", inside: str = "pass") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MODEL.format(imports=imports, factor=factor, inside=inside))
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Writes a package with relative imports into the current folder."""
    inner = tmp_path / "ours" / "models"
    write(inner / "small.py", "from ..numbers import FACTOR\nfrom . import sizes", "FACTOR * sizes.ONE")
    (inner / "sizes.py").write_text("ONE = 1\n")
    (tmp_path / "ours" / "numbers.py").write_text("FACTOR = 3\n")
    for folder in (tmp_path / "ours", inner):
        (folder / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("ours", "plain"):
            del sys.modules[name]


def test_program_specs_are_parsed(package: Path) -> None:
    (package / "plan.out").touch()
    assert read_spec("model.py") == Source(Path("model.py"))
    assert read_spec("a/b.py:step") == Source(Path("a/b.py"), "step")
    assert read_spec("ours.models.small:step") == Source(Path("ours.models.small"), "step", "ours.models.small")
    assert read_spec("ours.models.small").module == "ours.models.small"
    assert read_spec("ours:step").module == "ours"
    for plan in ("json", "plan.bin", "plan.out", "a/plan", "/tmp/x:y/plan.bin", "no_such_package.plan", "dump.mlir"):
        assert read_spec(plan) == Source(Path(plan)), plan


@pytest.mark.parametrize(
    "spec", ["ours.models.small:step", "ours.models.small", "ours/models/small.py:step", "ours/models/small.py"]
)
def test_a_module_of_a_package_compiles_checks_and_runs(spec: str, package: Path) -> None:
    assert pwc_here("compile", spec, "-o", "plan.bin")[0] == 0
    assert load_plan("plan.bin").name == "step"
    assert pwc_here("check", spec)[0] == 0
    exit_code, stdout, stderr = pwc_here("run", spec, "--reference")
    assert exit_code == 0 and "[0., 3., 6., 9.]" in stdout, stderr


def test_a_file_of_a_package_runs_from_another_folder(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert pwc_here("run", f"{package}/ours/models/small.py")[0] == 0


def test_relative_imports_without_init_file_need_the_module_form(package: Path) -> None:
    write(package / "plain" / "model.py", "from .numbers import FACTOR", "FACTOR")
    (package / "plain" / "numbers.py").write_text("FACTOR = 5\n")
    exit_code, _, stderr = pwc_here("run", "plain/model.py")
    assert exit_code == 1 and "error[PWC0802]" in stderr and "PKG.MODULE:PROGRAM" in stderr
    exit_code, stdout, _ = pwc_here("run", "plain.model:step")
    assert exit_code == 0 and "15." in stdout


def test_imports_during_tracing_are_found(tmp_path: Path) -> None:
    """Runs in a separate process from another folder, as `python FILE` does. Afterwards sys.path is restored."""
    write(tmp_path / "lazy.py", inside="import beside_it; assert beside_it.THERE")
    (tmp_path / "beside_it.py").write_text("THERE = True\n")
    code = (
        "import sys\nfrom pathways.cli.main import main\nbefore = list(sys.path)\n"
        "try:\n    main()\nfinally:\n    assert sys.path == before, sys.path\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-W", "error", "-c", code, "run", str(tmp_path / "lazy.py")]
    done = subprocess.run(arguments, capture_output=True, text=True, env=env, check=False, cwd="/")
    assert done.returncode == 0 and "[0., 2., 4., 6.]" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ("ours.models.missing:step", "PWC0801", "no module ours.models.missing"),
        ("nowhere_at_all:step", "PWC0801", "no module nowhere_at_all"),
        ("ours.models.small:other", "PWC0801", "programs: step"),
        ("ours.models.sizes:ONE", "PWC0801", "programs: none"),
        ("ours.broken:step", "PWC0802", "no_such_module_in_it"),
        ("ours/models/small.txt", "PWC0801", "no such file"),
        ("ours/text.txt", "PWC0801", "not Python"),
    ],
)
def test_missing_and_broken_modules_are_refused(spec: str, code: str, message: str, package: Path) -> None:
    (package / "ours" / "broken.py").write_text("import no_such_module_in_it\n")
    (package / "ours" / "text.txt").write_text("text\n")
    exit_code, _, stderr = pwc_here("compile", spec)
    assert exit_code == (1 if code == "PWC0802" else 2) and f"error[{code}]" in stderr and message in stderr
    if code == "PWC0802":
        assert "ours/broken.py:1" in stderr and "python -m ours.broken" in stderr


def test_a_package_named_like_a_stdlib_module_is_read_as_files(tmp_path: Path) -> None:
    path = write(tmp_path / "json" / "model.py")
    (tmp_path / "json" / "__init__.py").touch()
    exit_code, _, stderr = pwc_here("compile", str(path))
    assert exit_code == 0, stderr
    write(path, "from . import anything")
    exit_code, _, stderr = pwc_here("compile", str(path))
    assert exit_code == 1 and "error[PWC0802]" in stderr and "PKG.MODULE:PROGRAM" in stderr


def test_run_takes_topology_placement_and_schedule_of_a_program(tmp_path: Path) -> None:
    path = write(tmp_path / "model.py")
    place = tmp_path / "place.py"
    place.write_text(
        "from pathways.compiler.placement import POLICIES\n\n\ndef loud(graph, topology):\n"
        "    print('placed on', [i.name for i in topology.islands])\n    return POLICIES['spread'](graph, topology)\n"
    )
    machines = tmp_path / "machines.toml"
    machines.write_text('[[island]]\nname = "mine"\ndevices = 2\n')
    with pytest.warns(UserWarning, match="schedule '1f1b' changes nothing"):
        exit_code, stdout, stderr = pwc_here(
            "run", str(path), "--topology", str(machines), "--placement", f"{place}:loud", "--schedule", "1f1b"
        )
    assert exit_code == 0 and "placed on ['mine']" in stdout and "[0., 2., 4., 6.]" in stdout, stderr
    for option, value, code, exit_ in (
        ("--topology", "devices=1", "PWC0301", 5),
        ("--topology", "islands", "PWC0704", 2),
        ("--placement", "nothing", "PWC0307", 2),
        ("--schedule", "nothing", "PWC0405", 2),
    ):
        got, _, stderr = pwc_here("run", str(path), option, value)
        assert got == exit_ and f"error[{code}]" in stderr
    plan = tmp_path / "plan.bin"
    assert pwc_here("compile", str(path), "-o", str(plan))[0] == 0
    for option in (["--topology", "devices=2"], ["--placement", "spread"], ["--schedule", "1f1b"]):
        got, _, stderr = pwc_here("run", str(plan), *option)
        assert got == 2 and "error[PWC0801]" in stderr and option[0] in stderr


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
def test_every_sample_compiles_without_options(root: Path) -> None:
    for sample in sorted((root / "samples").glob("*.py")):
        if sample.stem == "elastic":  # its programs depend on the connected islands
            continue
        exit_code, _, stderr = pwc_here("compile", str(sample))
        assert exit_code == 0, (sample, stderr)
