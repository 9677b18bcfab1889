"""What a command leaves to the end of its process is not looked through for cycles; inside of another, it is."""

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
def test_a_process_ends_without_a_search_for_cycles(command: str, tmp_path: Path) -> None:
    (no_plan := tmp_path / "plan.txt").write_text("no plan")  # an error is an end, too
    arguments = [command, str(no_plan)] if command == "viz" else [command]
    done = run_python("-c", AS_A_PROCESS.format(arguments=arguments))
    assert done.stdout.splitlines()[-1] == "frozen True True", done.stderr


def test_inside_of_another_process_all_is_looked_at() -> None:
    assert CliRunner().invoke(main, ["passes"]).exit_code == 0
    with left_to_the_process():
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() == 0
