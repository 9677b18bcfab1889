"""Tests `pwc search`, and that `pwc compile` applies its choice."""

from pathlib import Path

import pytest
from support.processes import pwc_here

from pathways.dialect.choice import SplitChoice, load_choice, write_choice
from pathways.dialect.plan.plan_file import load_plan

SOURCE = """
import jax, numpy as np, pathways as pw
from support.searched import batch, init, loss
MACHINES = "islands=2,devices=2"
def example():
    return init(), batch()
def apart():
    return {"params": init()}
def broken():
    raise ValueError("no data")
@pw.program(example_args=example)
def step(params, rows):
    return jax.value_and_grad(trained)(params, rows)
trained = pw.pipeline(loss)
"""
MACHINES = ("--topology", "islands=2,devices=2,flops=1e9")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "model.py"
    path.write_text(SOURCE)
    return str(path)


def test_a_loss_is_searched_and_its_choice_compiled(source: str, tmp_path: Path) -> None:
    choice, plan = tmp_path / "choice.toml", tmp_path / "plan.bin"
    exit_code, stdout, stderr = pwc_here("search", f"{source}:loss", *MACHINES, "--batch", "32", "-o", str(choice))
    assert exit_code == 0, stderr
    assert "stages x data x model" in stdout and "of its plan" in stdout and "not shown:" in stdout
    found = load_choice(choice)
    options = ("--choice", str(choice), "-o", str(plan))
    exit_code, stdout, stderr = pwc_here("compile", f"{source}:step", *MACHINES, *options)
    assert exit_code == 0, stderr
    made = load_plan(plan)
    assert len(made.slices) == found.stages
    assert [s.island for s in made.slices] == list(found.islands)
    assert made.schedule.name == found.schedule


def test_a_choice_sets_the_schedule_and_the_slices(source: str, tmp_path: Path) -> None:
    path, plan = tmp_path / "choice.toml", tmp_path / "plan.bin"
    path.write_text(write_choice(SplitChoice(2, 2, 2, 1, 4, "interleaved", islands=("island0", "island1"))))
    options = ("--choice", str(path), "-o", str(plan))
    assert pwc_here("compile", f"{source}:step", *MACHINES, *options)[0] == 0
    made = load_plan(plan).schedule
    assert (made.name, made.stages, made.slices, made.microbatches) == ("interleaved", 4, 2, 4)
    assert pwc_here("compile", f"{source}:step", *MACHINES, *options, "--schedule", "gpipe")[0] == 0
    assert load_plan(plan).schedule.name == "gpipe"


def test_a_program_is_searched(source: str) -> None:
    exit_code, stdout, stderr = pwc_here("search", f"{source}:step", *MACHINES, "--compiled", "1", "--top", "2")
    assert exit_code == 0 and "of its plan" in stdout, stderr


@pytest.mark.parametrize(
    ("words", "code", "exit_code", "says"),
    [
        ((":nothing",), "PWC0801", 2, "no function named nothing"),
        ((":loss", "--example", "none"), "PWC0801", 2, "nothing named none"),
        ((":loss", "--example", "apart"), "PWC0801", 2, "which is a dict"),
        ((":loss", "--example", "broken"), "PWC0802", 1, "no data"),
        ((":loss", "--batch-argnums", "3"), "PWC0117", 2, "2 example arguments"),
        ((":loss", "--batch-argnums", "one"), "batch-argnums", 2, "not a list of numbers"),
        ((":loss", "-o", "/nowhere/at/all.toml"), "PWC0606", 2, "no folder"),
        ((":loss", "--topology", "devices=1,memory=1KiB"), "PWC0118", 5, "do not fit"),
    ],
)
def test_invalid_searches_are_refused(
    source: str, words: tuple[str, ...], code: str, exit_code: int, says: str
) -> None:
    given = f"{source}{words[0]}", *MACHINES, *words[1:]
    got, _, stderr = pwc_here("search", *given)
    assert got == exit_code and code in stderr and says in stderr, stderr


def test_a_missing_or_invalid_choice_is_refused(source: str, tmp_path: Path) -> None:
    exit_code, _, stderr = pwc_here("compile", f"{source}:step", *MACHINES)
    assert exit_code == 2 and "PWC0116" in stderr
    (tmp_path / "broken.toml").write_text("stages = 0")
    exit_code, _, stderr = pwc_here("compile", f"{source}:step", "--choice", str(tmp_path / "broken.toml"))
    assert exit_code == 2 and "PWC0115" in stderr


def test_a_choice_for_a_program_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    choice, plain = tmp_path / "choice.toml", tmp_path / "plain.py"
    choice.write_text(write_choice(SplitChoice()))
    plain.write_text(
        "import jax, numpy as np, pathways as pw\n"
        "@pw.program(example_args=lambda: (np.ones(4, np.float32),))\n"
        "def double(x):\n    return 2 * x\n"
    )
    exit_code, _, stderr = pwc_here("compile", str(plain), "--choice", str(choice))
    assert exit_code == 2 and "neither slices nor choice" in stderr
