"""Tests that `pwc` skips garbage collection when its process exits, but not when another process calls it."""

import gc
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.processes import run_python

from pathways.cli.main import main
from pathways.cli.process_end import left_to_the_process

AS_A_PROCESS = """
import atexit, gc, sys
sys.argv[:] = ["pwc", *{arguments}]
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 1000, gc.isenabled()))
from pathways.cli.main import main
main()
"""


@pytest.mark.parametrize("command", ["passes", "viz"])
def test_a_pwc_process_exits_without_garbage_collection(command: str, tmp_path: Path) -> None:
    (no_plan := tmp_path / "plan.txt").write_text("no plan")  # an error ends the process, too
    arguments = [command, str(no_plan)] if command == "viz" else [command]
    done = run_python("-c", AS_A_PROCESS.format(arguments=arguments))
    assert done.stdout.splitlines()[-1] == "frozen True True", done.stderr


def test_garbage_collection_resumes_inside_another_process() -> None:
    frozen = gc.get_freeze_count()
    assert CliRunner().invoke(main, ["passes"]).exit_code == 0
    with left_to_the_process():
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() <= frozen
