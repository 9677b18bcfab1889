"""The samples run as a user runs them, and give the results of plain JAX."""

from pathlib import Path

import numpy as np
import pytest
from support.forked_python import processes_from_nothing
from support.processes import load_file, run_python

import pathways as pw
from pathways.dialect.ir import pw as ops
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.instructions import Run

MAX_BYTES_BETWEEN_SLICES = {
    "figure2:f": 24,
    "finetune_vision:train_step": 1_048_576,
    "mixture_of_experts:moe_step": 32_768,
    "pipeline_any_model:train_step": 99_275,
    "speculative_decoding:generate": 636,
    "train_lm:train_step": 1_057_056,
}
"""The most bytes that each sample may move between slices. Bodies of control flow count once."""


def test_figure2_prints_the_result_of_the_paper(root: Path) -> None:
    done = run_python(str(root / "samples" / "figure2.py"))
    assert done.stdout == "[3. 5.] [2. 4.]\n", done.stderr
    assert done.returncode == 0


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("mixture_of_experts-6",))
@pytest.mark.parametrize(("sample", "steps"), [("train_lm", 12), ("mixture_of_experts", 6)])
def test_training_equals_plain_jax(root: Path, sample: str, steps: int) -> None:
    losses = load_file(root / "samples" / f"{sample}.py").train(steps)
    assert len(losses) == steps
    for ours, plain in losses:
        assert ours == pytest.approx(plain, rel=1e-5)
    if sample == "train_lm":
        assert losses[-1][0] < 0.75 * losses[0][0]


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_a_library_transformer_in_a_pipeline_equals_plain_jax(root: Path) -> None:
    for ours, plain in load_file(root / "samples" / "pipeline_any_model.py").train(3, layers=6, stages=3, scan=True):
        assert ours == pytest.approx(plain, rel=1e-5)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_a_conv_net_in_a_pipeline_equals_plain_jax(root: Path) -> None:
    for ours, plain in load_file(root / "samples" / "finetune_vision.py").train(4):
        assert ours == pytest.approx(plain, rel=1e-5)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
@pytest.mark.parametrize("schedule", ("gpipe", "zero-bubble"))
def test_training_equals_plain_jax_under_other_schedules(root: Path, schedule: str) -> None:
    for ours, plain in load_file(root / "samples" / "train_lm.py").train(3, schedule):
        assert ours == pytest.approx(plain, rel=1e-5)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_training_continues_when_a_device_is_lost(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replays from the last snapshot on a spare island. Losses equal those of an undisturbed run."""
    sample = load_file(root / "samples" / "train_lm.py")
    undisturbed = sample.train(9, topology="islands=3,devices=4")
    plan = sample.train_step.lower(*sample.example_args()).compile("islands=3,devices=4").plan
    runs = [i for s in plan.streams for i in s.instructions if isinstance(i, Run) and i.name.endswith("last_stage")]
    with pw.testing.fault("lose", program="step", step=runs[1].step, after=7, message="unplugged") as fault:
        losses = sample.train(9, topology="islands=3,devices=4", snapshot=tmp_path / "state.npz")
    assert fault.happened == 1
    assert losses == undisturbed
    output = capsys.readouterr()
    assert "unplugged; on from step 5" in output.out and "placed again" in output.err


def test_speculative_decoding_equals_decoding_with_the_large_model(root: Path) -> None:
    sample = load_file(root / "samples" / "speculative_decoding.py")
    tokens, rounds = sample.generate(sample.small, sample.large, sample.prompt)
    np.testing.assert_array_equal(np.asarray(tokens), sample.one_after_another(sample.large, sample.prompt))
    assert int(rounds) < sample.LENGTH - len(sample.prompt)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_training_continues_while_islands_are_added_and_removed(root: Path) -> None:
    """The script compares each loss with that of plain JAX on the same batches."""
    events = ("--remove-at", "6", "--kill-at", "10", "--add-at", "14", "--check")
    with processes_from_nothing():  # the sample finds the host that it kills by its command line
        done = run_python(str(root / "samples" / "elastic.py"), "--islands", "3", "--steps", "18", *events)
    assert done.returncode == 0, done.stdout + done.stderr
    for output in (
        "island2 was removed: 0 steps lost",
        "the host of island1 is lost",
        "island3 was added",
        "1 islands",
    ):
        assert output in done.stdout
    assert "largest relative difference" in done.stdout


def test_a_sample_runs_as_a_script(root: Path) -> None:
    done = run_python(str(root / "samples" / "mixture_of_experts.py"), "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert "plain JAX" in done.stdout


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("[!pt]*",))
@pytest.mark.parametrize("sample", MAX_BYTES_BETWEEN_SLICES)
def test_bytes_between_slices_stay_within_their_limit(root: Path, sample: str) -> None:
    file, name = sample.split(":")
    program = getattr(load_file(root / "samples" / f"{file}.py"), name)
    text = program.lower(*program.example_args).as_text("transfer", debug_info=True)
    read = ProgramIR(parse(text, make_context()))
    moves = [op for function in read.functions for op in function.nodes() if isinstance(op, ops.TransferOp)]
    ends = [(op.bytes, op.source and read.slice_of(op.source[0].mesh), read.slice_of(op.mesh)) for op in moves]
    assert sum(size or 0 for size, source, target in ends if source != target) <= MAX_BYTES_BETWEEN_SLICES[sample]
