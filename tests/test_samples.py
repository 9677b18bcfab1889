"""Each sample, as a user runs it."""

from pathlib import Path

import numpy as np
import pytest
from support.processes import load_file, run_python

import pathways as pw
from pathways.compiler.schedule import SCHEDULES
from pathways.dialect.ir import pw as ops
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.instructions import Run

BETWEEN = {
    "figure2:f": 24,
    "finetune_vision:train_step": 1_048_576,
    "mixture_of_experts:moe_step": 32_768,
    "pipeline_any_model:train_step": 99_275,
    "speculative_decoding:generate": 636,
    "train_lm:train_step": 1_057_056,
}
"""The most bytes that a sample's program has ever had to move between slices, bodies of control flow once."""


def test_figure2_prints_what_the_paper_says(root: Path) -> None:
    done = run_python(str(root / "samples" / "figure2.py"))
    assert done.stdout == "[3. 5.] [2. 4.]\n", done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(("sample", "steps"), [("train_lm", 30), ("mixture_of_experts", 6)])
def test_training_equals_plain_jax(root: Path, sample: str, steps: int) -> None:
    losses = load_file(root / "samples" / f"{sample}.py").train(steps)
    assert len(losses) == steps
    for ours, plain in losses:
        assert ours == pytest.approx(plain, rel=1e-5)
    if sample == "train_lm":
        assert losses[-1][0] < 0.75 * losses[0][0]


@pytest.mark.parametrize("scan", [False, True])
def test_a_library_s_transformer_in_a_pipeline_equals_plain_jax(root: Path, scan: bool) -> None:
    for ours, plain in load_file(root / "samples" / "pipeline_any_model.py").train(3, layers=6, stages=3, scan=scan):
        assert ours == pytest.approx(plain, rel=1e-5)


def test_a_conv_net_in_a_pipeline_equals_plain_jax(root: Path) -> None:
    for ours, plain in load_file(root / "samples" / "finetune_vision.py").train(4):
        assert ours == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_training_equals_plain_jax_under_every_schedule(root: Path, schedule: str) -> None:
    for ours, plain in load_file(root / "samples" / "train_lm.py").train(3, schedule):
        assert ours == pytest.approx(plain, rel=1e-5)


def test_training_goes_on_when_a_device_is_lost(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a topology with a spare island, replayed from the last snapshot: as if nothing had happened."""
    sample = load_file(root / "samples" / "train_lm.py")
    undisturbed = sample.train(12, topology="islands=3,devices=4")
    plan = sample.train_step.lower(*sample.example_args()).compile("islands=3,devices=4").plan
    runs = [i for s in plan.streams for i in s.instructions if isinstance(i, Run) and i.name.endswith("last_stage")]
    with pw.testing.fault("lose", program="step", step=runs[1].step, after=7, message="unplugged") as fault:
        losses = sample.train(12, topology="islands=3,devices=4", snapshot=tmp_path / "state.npz")
    assert fault.happened == 1
    assert losses == undisturbed
    said = capsys.readouterr()
    assert "unplugged; on from step 5" in said.out and "placed anew" in said.err


def test_decoding_with_two_models_equals_one(root: Path) -> None:
    sample = load_file(root / "samples" / "speculative_decoding.py")
    tokens, rounds = sample.generate(sample.small, sample.large, sample.prompt)
    np.testing.assert_array_equal(np.asarray(tokens), sample.one_after_another(sample.large, sample.prompt))
    assert int(rounds) < sample.LENGTH - len(sample.prompt)


def test_training_goes_on_while_islands_come_and_go(root: Path) -> None:
    """The script compares each loss with that of plain JAX on the same batches."""
    events = ("--remove-at", "6", "--kill-at", "10", "--add-at", "14", "--check")
    done = run_python(str(root / "samples" / "elastic.py"), "--islands", "3", "--steps", "18", *events)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("island2 was removed: 0 steps lost", "the host of island1 is gone", "island3 was added", "1 islands"):
        assert said in done.stdout
    assert "largest relative difference" in done.stdout


def test_samples_run_as_scripts(root: Path) -> None:
    done = run_python(str(root / "samples" / "mixture_of_experts.py"), "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert "plain JAX" in done.stdout


@pytest.mark.parametrize("sample", BETWEEN)
def test_no_more_bytes_move_between_slices(root: Path, sample: str) -> None:
    file, name = sample.split(":")
    program = getattr(load_file(root / "samples" / f"{file}.py"), name)
    text = program.lower(*program.example_args).as_text("transfer", debug_info=True)
    read = ProgramIR(parse(text, make_context()))
    moves = [op for function in read.functions for op in function.nodes() if isinstance(op, ops.TransferOp)]
    ends = [(op.bytes, op.source and read.slice_of(op.source[0].mesh), read.slice_of(op.mesh)) for op in moves]
    assert sum(size or 0 for size, source, target in ends if source != target) <= BETWEEN[sample]
