"""The notebooks run and print the output that is stored in them."""

from pathlib import Path
from typing import Any

import pytest
from support.notebooks import differences
from support.processes import ROOT, run_python

NOTEBOOKS = sorted((ROOT / "samples" / "notebooks").glob("*.ipynb"))


@pytest.mark.long("the code of a guide runs: 2 to 18 s each")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_its_stored_output(notebook: Path, tmp_path: Path) -> None:
    """Runs in a separate process: sockets of the kernel warn when it ends, and pytest makes warnings errors."""
    code = "import sys, warnings; warnings.resetwarnings(); from support.notebooks import main; sys.exit(main())"
    done = run_python(
        "-c", code, str(notebook), PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}", IPYTHONDIR=str(tmp_path), JAX_PLATFORMS="cpu"
    )
    assert done.returncode == 0, done.stderr


def cell(text: str, *tags: str) -> dict[str, Any]:
    output = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    return {"cell_type": "code", "metadata": {"tags": [*tags]}, "outputs": output}


def test_a_cell_with_other_output_is_detected() -> None:
    stored = {"cells": [cell("1\n"), cell("2 ms", "varies"), cell("3 ms", "varies")]}
    fresh = {"cells": [cell("4\n"), cell("5 ms", "varies"), cell("", "varies")]}
    assert [one.split(" prints")[0] for one in differences(stored, fresh)] == ["cell 0", "cell 2"]
    assert not list(differences(stored, stored)) and len(NOTEBOOKS) == 3
