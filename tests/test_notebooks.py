"""The notebooks run, and print what is checked in."""

from pathlib import Path
from typing import Any

import pytest
from support.notebooks import differences
from support.processes import ROOT, run_python

NOTEBOOKS = sorted((ROOT / "samples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_checked_in(notebook: Path, tmp_path: Path) -> None:
    """In a process of its own: the kernel's sockets warn where they end, and warnings are errors here."""
    code = "import sys, warnings; warnings.resetwarnings(); from support.notebooks import main; sys.exit(main())"
    done = run_python(
        "-c", code, str(notebook), PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}", IPYTHONDIR=str(tmp_path), JAX_PLATFORMS="cpu"
    )
    assert done.returncode == 0, done.stderr


def cell(text: str, *tags: str) -> dict[str, Any]:
    output = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    return {"cell_type": "code", "metadata": {"tags": [*tags]}, "outputs": output}


def test_what_a_cell_prints_otherwise_is_seen() -> None:
    stored = {"cells": [cell("1\n"), cell("2 ms", "varies"), cell("3 ms", "varies")]}
    fresh = {"cells": [cell("4\n"), cell("5 ms", "varies"), cell("", "varies")]}
    assert [one.split(" prints")[0] for one in differences(stored, fresh)] == ["cell 0", "cell 2"]
    assert not list(differences(stored, stored)) and len(NOTEBOOKS) == 3
