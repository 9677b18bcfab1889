"""The rules of CONTRIBUTING.md on platforms, files and private names are checked by script."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.forked_python import processes_from_nothing
from support.processes import run_python

from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.platforms import PLATFORMS, Platform, platform_named

ROOT = Path(__file__).parent.parent
FOLDERS = ("dialect", "compiler", "runtime", "viz", "cli", "pathways/api")
MAX_LINES_PER_FILE = 400
COMPAT = {
    "dialect/mlir.py",
    "dialect/bare_mlir.py",
    "dialect/shardy_mpmd.py",
    "compiler/frontends/jax/compat.py",
    "runtime/host/devices/pjrt.py",
}
"""Modules that may import private names of JAX: one per layer, and two more of the dialect.

`bare_mlir.py` reads modules in a process that cannot afford to import JAX; `shardy_mpmd.py` needs Shardy.
"""
VERSIONS = {
    "dialect/plan/modules/vet.py": "the child that reads modules finds jaxlib where this process has it",
    "runtime/host/devices/executable_cache.py": "compiled code is for one version of jaxlib",
}
"""Modules that may import jaxlib itself, for its version or location, but nothing inside it."""
ABACUS = """
from pathways.dialect.platforms import PLATFORMS, Platform
PLATFORMS["abacus"] = Platform("abacus", ("cpu",), apart={apart})
from pathways.cli.main import main
main()
"""


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (p for p in sorted((ROOT / folder).rglob("*.py")))


def pwc_with_abacus(apart: int, *arguments: str) -> str:
    """Runs `pwc` with one more row in the table of platforms, and no other change."""
    with processes_from_nothing():
        done = run_python("-c", ABACUS.format(apart=apart), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_platform_is_defined_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform_named("abacus") == Platform("abacus", ("abacus",))
    row = Platform("abacus", ("cpu",), in_flight=3)
    monkeypatch.setitem(PLATFORMS, "abacus", row)
    assert platform_named("abacus") is row


def test_the_command_line_offers_a_platform_added_as_a_row() -> None:
    for command in ("compile", "check"):
        assert "[cpu|gpu|tpu|abacus]" in pwc_with_abacus(0, command, "--help")


@pytest.mark.long("with devices that start apart: 2 s", keep=("0",))
@pytest.mark.parametrize("apart", [0, 4])
def test_programs_compile_for_a_platform_added_as_a_row(apart: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    sample = str(ROOT / "samples" / "figure2.py")
    pwc_with_abacus(
        apart, "compile", sample, "--platform", "abacus", "--topology", "islands=3,devices=2", "-o", str(path)
    )
    plan = load_plan(path)
    assert plan.platform == "abacus" and len(plan.computations) == 3
    assert [bool(c.local) for c in plan.computations] == [bool(apart)] * 3


@cache
def imported(path: Path) -> list[str]:
    """Lists the full name of everything that a file imports, at any depth."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_only_compat_modules_import_private_names_of_jax() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in imported(path)
        if f"{name}.".startswith(("jaxlib.", "jax._"))
    }
    elsewhere = {(path, name) for path, name in found if path not in COMPAT}
    assert {path for path, name in elsewhere if name in ("jaxlib", "jaxlib.version")} == set(VERSIONS)
    assert not [(path, name) for path, name in elsewhere if name not in ("jaxlib", "jaxlib.version")]
    assert {path for path, _ in found} == COMPAT | set(VERSIONS)


def test_only_the_platform_table_names_platforms() -> None:
    """The front end is the exception: platforms are parameters of `add_slice` there."""
    names = {*PLATFORMS, *(name for row in PLATFORMS.values() for name in row.lowered_as)}
    found: dict[str, set[str]] = {}
    for path in sources():
        constants = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
        if constants & names:
            found[path.relative_to(ROOT).as_posix()] = {str(name) for name in constants & names}
    assert found.pop("dialect/platforms.py") == names
    assert found == {"compiler/frontends/jax/devices.py": {"cpu", "gpu", "tpu"}}


def test_no_module_imports_private_names_of_another_module() -> None:
    """A name with a leading underscore is used only in its own module of this project."""
    taken = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in imported(path)
        if name.startswith("pathways.") and name.rpartition(".")[2].startswith("_") and not name.endswith("__")
    ]
    assert not taken


def test_a_public_name_is_defined_once() -> None:
    """A reader who searches for a class or function finds one definition.

    The exception is the module of timed devices, which has the names of the module of real ones.
    """
    found: dict[str, set[str]] = {}
    for path in (p for p in sources() if p != ROOT / "runtime/host/timed/pjrt.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                found.setdefault(node.name, set()).add(path.relative_to(ROOT).as_posix())
    twice = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(found.items()) if len(paths) > 1]
    assert not twice, "\n".join(twice)


def test_source_files_stay_within_the_line_limit() -> None:
    lines = {p.relative_to(ROOT).as_posix(): p.read_text().count("\n") for p in sources()}
    assert not {path: count for path, count in lines.items() if count > MAX_LINES_PER_FILE}
