"""Golden files: `tests/golden/*.mlir`, each with its command on the first line.

    // RUN: pwc opt - --no-debug-info --pass-pipeline=order-program
    ... what the command reads ...
    // EXPECTED exit 0
    ... what it prints, errors included ...

`pytest tests/test_golden.py --update-golden` writes what is printed; adding a test needs no Python.
"""

import shlex
from pathlib import Path

import pytest
from support import pwc_here

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.mlir"))
MARK = "// EXPECTED exit "


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    first, _, rest = path.read_text().partition("\n")
    given, mark, expected = rest.partition(MARK)
    assert first.startswith("// RUN: pwc ") and mark
    exit_code, stdout, stderr = pwc_here(*shlex.split(first.removeprefix("// RUN: pwc ")), stdin=given)
    printed = f"{exit_code}\n{stdout}{stderr}"
    if request.config.getoption("--update-golden"):
        path.write_text(f"{first}\n{given}{mark}{printed}")
    else:
        assert printed == expected


def test_every_pass_has_both() -> None:
    """What a pass does, and what it refuses."""
    from pathways.compiler.pipeline import PASSES

    stems = {p.stem for p in GOLDEN}
    for name in PASSES:
        assert {f"{name}", f"{name}-refuses"} <= stems
