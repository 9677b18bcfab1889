"""Golden files: `tests/golden/*.mlir` and `tests/golden/errors/*.py`, each with its command on the first line.

    // RUN: pwc opt - --no-debug-info --pass-pipeline=order-calls
    // What the file shows, in a sentence.
    ... what the command reads ...
    // EXPECTED exit 0
    ... what it prints, errors included ...

In Python files the comment sign is `#`, and what is printed stands behind it. `%s` is the path of the file itself,
`%S` its folder, as in LLVM's lit.
`pytest tests/compiler/test_golden.py --update-golden` writes what is printed; adding a test needs no Python.
"""

import re
import shlex
from pathlib import Path

import pytest
from support.fuzz_dumps import compile_on
from support.processes import pwc_here

_JAX_PRINTS = re.compile(r"^%s:\d+:\d+ \(\w+\)\n", re.MULTILINE)
"""jax 0.12 prints the user's line where an argument does not divide."""
FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = [*sorted(FOLDER.glob("*.mlir")), *sorted((FOLDER / "errors").glob("*.py"))]

SCREEN = 45
"""The most lines of what a command reads."""


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    sign = "//" if path.suffix == ".mlir" else "#"
    first, _, rest = path.read_text().partition("\n")
    run, mark = f"{sign} RUN: pwc ", f"{sign} EXPECTED exit "
    assert first.startswith(run)
    given, _, expected = rest.partition(mark)
    here = str(path.parent)
    arguments = [a.replace("%s", str(path)).replace("%S", here) for a in shlex.split(first.removeprefix(run))]
    exit_code, stdout, stderr = pwc_here(*arguments, stdin=given)
    printed = f"{exit_code}\n{stdout}{stderr}".replace(str(path), "%s").replace(here, "%S")
    # Slices are numbered over the process, failures are saved in temporary folders.
    printed = re.sub(r"\bslice\d+\b", "slice#", re.sub(r"[^\s=]*/pwc-\w+/", "TMP/", printed))
    printed = _JAX_PRINTS.sub("", printed)
    if sign == "#":
        printed = "".join(f"{line}\n" for line in _commented(printed.splitlines()))
    if request.config.getoption("--update-golden"):
        path.write_text(f"{first}\n{given}{mark}{printed}")
    else:
        assert printed == expected


def _commented(lines: list[str]) -> list[str]:
    return [lines[0], *(f"# {line}".rstrip() for line in lines[1:])]


def test_every_pass_has_both() -> None:
    """What a pass does, and what it refuses: in one file, or in one for each reason."""
    from pathways.compiler.pass_manager import PASSES

    stems = {p.stem for p in GOLDEN}
    for name in PASSES:
        assert name in stems
        assert any(s == f"{name}-refuses" or s.startswith(f"{name}-refuses-") for s in stems)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_what_is_given_fits_a_screen(path: Path) -> None:
    """And says in its second line what it shows."""
    if path.suffix == ".mlir":
        given = path.read_text().partition("// EXPECTED")[0].splitlines()
        assert given[1].startswith("// ")
        assert len(given) <= SCREEN


@pytest.mark.parametrize("path", [p for p in GOLDEN if "// EXPECTED exit 0" in p.read_text()], ids=lambda p: p.stem)
def test_what_is_given_compiles_on(path: Path) -> None:
    """It is a whole program, so that mutants of it (test_dumps.py) end where they were changed.

    Only memory may not suffice: `rematerialize` is given what does not fit.
    """
    given, _, _ = path.read_text().partition("\n")[2].partition("// EXPECTED")
    assert compile_on(given) in ("compiled", "PWC0302")
