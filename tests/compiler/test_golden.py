"""Tests that `pwc` commands print what golden files expect: `tests/golden/*.mlir` and `tests/golden/errors/*.py`.

The first line of a golden file is its command.

    // RUN: pwc opt - --no-debug-info --pass-pipeline=order-calls
    // What the file shows, in a sentence.
    ... the input of the command ...
    // EXPECTED exit 0
    ... the output of the command, errors included ...

In Python files comments begin with `#`, and so does each line of the expected output. `%s` is the path of the golden
file, `%S` its folder, as in LLVM's lit.
`pytest tests/compiler/test_golden.py --update-golden` overwrites the expected output; a new test needs no Python.
"""

import re
import shlex
from pathlib import Path

import pytest
from support.fuzz_dumps import compile_on
from support.processes import pwc_here

_JAX_SOURCE_LINE = re.compile(r"^%s:\d+:\d+ \(\w+\)\n", re.MULTILINE)
"""jax 0.12 prints the user's source line if an argument does not divide evenly; the line is not compared."""
GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN_FILES = [*sorted(GOLDEN_FOLDER.glob("*.mlir")), *sorted((GOLDEN_FOLDER / "errors").glob("*.py"))]

MAX_INPUT_LINES = 45
"""The input of a command fits on one screen."""


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda p: p.stem)
def test_the_command_of_a_golden_file_prints_the_expected_output(path: Path, request: pytest.FixtureRequest) -> None:
    sign = "//" if path.suffix == ".mlir" else "#"
    first, _, rest = path.read_text().partition("\n")
    run, mark = f"{sign} RUN: pwc ", f"{sign} EXPECTED exit "
    assert first.startswith(run)
    given, _, expected = rest.partition(mark)
    here = str(path.parent)
    arguments = [a.replace("%s", str(path)).replace("%S", here) for a in shlex.split(first.removeprefix(run))]
    exit_code, stdout, stderr = pwc_here(*arguments, stdin=given)
    printed = f"{exit_code}\n{stdout}{stderr}".replace(str(path), "%s").replace(here, "%S")
    # Slices are numbered per process, and failures are saved in temporary folders.
    printed = re.sub(r"\bslice\d+\b", "slice#", re.sub(r"[^\s=]*/pwc-\w+/", "TMP/", printed))
    printed = _JAX_SOURCE_LINE.sub("", printed)
    if sign == "#":
        printed = "".join(f"{line}\n" for line in _commented(printed.splitlines()))
    if request.config.getoption("--update-golden"):
        path.write_text(f"{first}\n{given}{mark}{printed}")
    else:
        assert printed == expected


def _commented(lines: list[str]) -> list[str]:
    return [lines[0], *(f"# {line}".rstrip() for line in lines[1:])]


def test_every_pass_has_golden_files_for_its_output_and_its_errors() -> None:
    """Errors of a pass are in one golden file, or in one file for each reason."""
    from pathways.compiler.pass_manager import PASSES

    stems = {p.stem for p in GOLDEN_FILES}
    for name in PASSES:
        assert name in stems
        assert any(s == f"{name}-refuses" or s.startswith(f"{name}-refuses-") for s in stems)


@pytest.mark.parametrize("path", [p for p in GOLDEN_FILES if p.suffix == ".mlir"], ids=lambda p: p.stem)
def test_the_input_of_a_golden_file_fits_on_one_screen(path: Path) -> None:
    """Also checks that its second line is a comment on what the file shows."""
    given = path.read_text().partition("// EXPECTED")[0].splitlines()
    assert given[1].startswith("// ")
    assert len(given) <= MAX_INPUT_LINES


@pytest.mark.parametrize(
    "path", [p for p in GOLDEN_FILES if "// EXPECTED exit 0" in p.read_text()], ids=lambda p: p.stem
)
def test_the_input_of_a_golden_file_compiles_to_a_plan(path: Path) -> None:
    """Mutants of the inputs (test_dumps.py) must fail where they were changed, so each input is a complete program.

    PWC0302 is allowed: inputs of `rematerialize` do not fit the memory.
    """
    given, _, _ = path.read_text().partition("\n")[2].partition("// EXPECTED")
    assert compile_on(given) in ("compiled", "PWC0302")
