"""Rules of the house, checked by script: what CONTRIBUTING.md says of platforms, files and private names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import run_python

from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.platforms import PLATFORMS, Platform, platform_named

ROOT = Path(__file__).parent.parent
FOLDERS = ("dialect", "compiler", "runtime", "viz", "cli", "pathways/api")
MOST_LINES = 400
COMPAT = {
    "dialect/mlir.py",
    "dialect/bare_mlir.py",
    "dialect/shardy_mpmd.py",
    "compiler/frontends/jax/compat.py",
    "runtime/host/devices/pjrt.py",
}
"""One a layer, and two more of the dialect: what reads modules in a process that has no time to import JAX; Shardy."""
VERSIONS = {
    "dialect/plan/modules/vet.py": "the child that reads modules finds jaxlib where this process has it",
    "runtime/host/devices/executable_cache.py": "compiled code is for one version of jaxlib",
}
"""Who may import jaxlib itself, for its version or its place, but nothing inside of it."""
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
    """`pwc` where there is one row more, and nothing else."""
    done = run_python("-c", ABACUS.format(apart=apart), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_platform_is_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform_named("abacus") == Platform("abacus", ("abacus",))
    row = Platform("abacus", ("cpu",), in_flight=3)
    monkeypatch.setitem(PLATFORMS, "abacus", row)
    assert platform_named("abacus") is row


def test_the_command_line_knows_a_platform_by_its_row() -> None:
    for command in ("compile", "check"):
        assert "[cpu|gpu|tpu|abacus]" in pwc_with_abacus(0, command, "--help")


@pytest.mark.parametrize("apart", [0, 4])
def test_programs_compile_for_a_platform_by_its_row(apart: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    sample = str(ROOT / "samples" / "figure2.py")
    pwc_with_abacus(
        apart, "compile", sample, "--platform", "abacus", "--topology", "islands=3,devices=2", "-o", str(path)
    )
    plan = load_plan(path)
    assert plan.platform == "abacus" and len(plan.computations) == 3
    assert [bool(c.local) for c in plan.computations] == [bool(apart)] * 3


def imported(path: Path) -> Iterator[str]:
    """What a file imports, in full, at any depth of it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_private_names_of_jax_are_in_the_compat_modules() -> None:
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


def test_nothing_is_said_of_a_platform_but_in_its_row() -> None:
    """The front end has its names beside `platforms.py`: they are parameters of `add_slice`."""
    names = {*PLATFORMS, *(name for row in PLATFORMS.values() for name in row.lowered_as)}
    found: dict[str, set[str]] = {}
    for path in sources():
        said = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
        if said & names:
            found[path.relative_to(ROOT).as_posix()] = {str(name) for name in said & names}
    assert found.pop("dialect/platforms.py") == names
    assert found == {"compiler/frontends/jax/devices.py": {"cpu", "gpu", "tpu"}}


def test_compat_modules_keep_private_names_to_themselves() -> None:
    """Nobody takes a name with an underscore from another module of this project."""
    taken = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in imported(path)
        if name.startswith("pathways.") and name.rpartition(".")[2].startswith("_") and not name.endswith("__")
    ]
    assert not taken


def test_a_public_name_is_defined_once() -> None:
    """A reader who looks for a class or function finds one."""
    found: dict[str, set[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                found.setdefault(node.name, set()).add(path.relative_to(ROOT).as_posix())
    twice = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(found.items()) if len(paths) > 1]
    assert not twice, "\n".join(twice)


def test_files_have_one_idea_and_no_more_lines_than_that_takes() -> None:
    lines = {p.relative_to(ROOT).as_posix(): p.read_text().count("\n") for p in sources()}
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}
