"""Tests the commands `pwc compile`, `opt`, `run` and `inspect` as users call them."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from support.processes import ROOT, load_file, pwc, pwc_here

from pathways.cli.main import COMMANDS
from pathways.dialect.phases import Phase

SMALL_SOURCE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw

devices = pw.make_virtual_device_set()
mesh, other = devices.add_slice(devices=2).mesh("x"), devices.add_slice(devices=4).mesh("y")
scale = jax.jit(lambda x: 2 * x, in_shardings=NamedSharding(mesh, P("x")))
table = jnp.asarray(np.arange(4096, dtype=np.float32))
shift = jax.jit(lambda x: x + table[: x.shape[0]], in_shardings=NamedSharding(other, P("y")))


@pw.program(example_args=(np.arange(8, dtype=np.float32),))
def step(x):
    return {"y": shift(scale(x)), "zeros": jnp.zeros(3)}


@pw.program(example_args=lambda: (jax.ShapeDtypeStruct((8,), jnp.bfloat16), jax.ShapeDtypeStruct((), jnp.int32)))
def second(x, n):
    return scale(x) * n
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL_SOURCE)
    return path


@pytest.mark.parametrize("command", [[], ["compile"], ["run"], ["inspect"], ["opt"]])
def test_help_has_an_example(command: list[str]) -> None:
    exit_code, stdout, _ = pwc_here(*command, "--help")
    assert exit_code == 0
    assert not command or f"pwc {command[0]} " in stdout


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_the_plan_of_a_training_step_runs_in_another_process(tmp_path: Path) -> None:
    """Compiles in one process, runs in another with inputs and outputs in files, and compares with plain JAX."""
    plan, inputs, outputs = tmp_path / "a.bin", tmp_path / "in.npz", tmp_path / "out.npz"
    assert pwc("compile", str(ROOT / "samples" / "train_lm.py"), "-o", str(plan)).returncode == 0
    sample = load_file(ROOT / "samples" / "train_lm.py")
    params = sample.init_params()
    arguments = {"params": params, "state": sample.OPTIMIZER.init(params), "tokens": next(iter(sample.batches(1)))}
    flat: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    for name, tree in arguments.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:  # pyright: ignore
            flat[name + jax.tree_util.keystr(path)] = np.asarray(leaf)  # pyright: ignore
    np.savez(inputs, allow_pickle=False, **flat)
    done = pwc("run", str(plan), "--inputs", str(inputs), "--outputs", str(outputs))
    assert done.returncode == 0, done.stderr
    plain = sample.make_step(sample.make_loss(sample.first_stage, sample.last_stage))
    expected = jax.jit(plain)(*arguments.values())  # pyright: ignore
    with np.load(outputs) as results:
        leaves = jax.tree_util.tree_flatten_with_path(expected)[0]  # pyright: ignore
        assert len(leaves) == len(results.files)
        for path, leaf in leaves:  # pyright: ignore
            name = "out" + jax.tree_util.keystr(path)  # pyright: ignore
            # Adam divides gradients by their size, so that rounding noise decides the smallest ones.
            np.testing.assert_allclose(results[name], np.asarray(leaf), rtol=1e-4, atol=1e-4)  # pyright: ignore


def test_the_dump_of_every_phase_compiles_to_the_same_plan(small: Path, tmp_path: Path) -> None:
    plan, dumps = tmp_path / "plan.bin", tmp_path / "dumps"
    arguments = ("compile", f"{small}:step", "-o", str(plan), "--dump-phases-to", str(dumps))
    exit_code, stdout, _ = pwc_here(*arguments)
    assert exit_code == 0 and "-> island1" in stdout
    assert sorted(p.name for p in dumps.glob("*.mlir")) == [p.dump_name for p in Phase]
    assert list((dumps / "constants").iterdir())
    for phase in Phase:
        dump = dumps / phase.dump_name
        exit_code, printed, stderr = pwc_here("opt", str(dump))
        assert exit_code == 0, stderr
        assert printed.rstrip("\n") == dump.read_text().rstrip("\n")
        again = tmp_path / f"{phase}.bin"
        assert pwc_here("compile", str(dump), "-o", str(again))[0] == 0
        assert again.read_bytes() == plan.read_bytes(), phase


def test_opt_runs_the_passes_of_a_given_pipeline(small: Path, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    assert pwc_here("compile", f"{small}:step", "--dump-phases-to", str(dumps))[0] == 0
    pipeline = "propagate-shardings,place{policy=spread},insert-transfers,order-calls,plan-islands,per-device"
    exit_code, printed, _ = pwc_here("opt", str(dumps / "01.trace.mlir"), f"--pass-pipeline={pipeline}")
    assert exit_code == 0
    assert printed.rstrip("\n") == (dumps / "06.plan.mlir").read_text().rstrip("\n")
    exit_code, _, stderr = pwc_here("opt", str(dumps / "01.trace.mlir"), "--pass-pipeline=order-calls")
    assert exit_code == 3 and "PWC0703" in stderr
    exit_code, _, stderr = pwc_here("opt", "-", "--pass-pipeline=nonsense", stdin="module {}")
    assert exit_code == 2 and "PWC0705" in stderr


def test_compile_to_prints_the_ir_of_that_phase(small: Path) -> None:
    exit_code, stdout, _ = pwc_here("compile", f"{small}:step", "--compile-to", "shard")
    assert exit_code == 0 and 'pw.phase = "shard"' in stdout and "out_shardings" in stdout


def test_print_ir_after_prints_the_requested_passes(small: Path) -> None:
    exit_code, _, stderr = pwc_here("compile", f"{small}:step", "--print-ir-after", "place")
    assert exit_code == 0
    assert stderr.count("// ----- after") == 1 and "// ----- after place" in stderr
    _, _, stderr = pwc_here("compile", f"{small}:step", "--print-ir-after-all")
    assert stderr.count("// ----- after") == 8


def test_run_uses_the_example_of_a_source_and_compares_with_jax(small: Path) -> None:
    exit_code, stdout, stderr = pwc_here("run", f"{small}:step", "--reference", "--repeat", "2")
    assert exit_code == 0, stderr
    assert "out['y']: float32[8]" in stdout and "reference: equal" in stdout
    assert "random" not in stderr


def test_run_without_inputs_notes_that_its_data_is_random(small: Path, tmp_path: Path) -> None:
    plan = tmp_path / "second.bin"
    assert pwc_here("compile", f"{small}:second", "-o", str(plan))[0] == 0
    exit_code, stdout, stderr = pwc_here("run", str(plan), "--json", "--reference")
    assert exit_code == 0 and "random data (seed 0)" in stderr
    row = json.loads(stdout)
    assert row["version"] == 2 and row["results"]["out"]["dtype"] == "bfloat16"
    assert all(r["close"] for r in row["reference"])


def test_run_reads_inputs_from_files_and_values(small: Path, tmp_path: Path) -> None:
    import ml_dtypes

    plan, x, out = tmp_path / "second.bin", tmp_path / "x.npy", tmp_path / "out.npz"
    assert pwc_here("compile", f"{small}:second", "-o", str(plan))[0] == 0
    np.save(x, np.arange(8).astype(ml_dtypes.bfloat16))
    exit_code, _, stderr = pwc_here("run", str(plan), "--input", f"x=@{x}", "--input", "n=3", "--outputs", str(out))
    assert exit_code == 0, stderr
    with np.load(out) as results:
        values = results["out"].view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(values, 6 * np.arange(8, dtype=np.float32))


def test_inspect_prints_the_requested_views_of_a_plan(moe_plan: Path) -> None:
    exit_code, stdout, _ = pwc_here("inspect", str(moe_plan), "--all")
    assert exit_code == 0
    for part in ("params['router']", "out[1]", "island0", "send %", "recv %", "free %", "peak"):
        assert part in stdout
    exit_code, stdout, _ = pwc_here("inspect", str(moe_plan), "--json")
    row = json.loads(stdout)
    assert exit_code == 0 and row["version"] == 2 and len(row["streams"]) == 3
    s, m = ("--schedule",), ("--memory",)
    both, order, memory = (pwc_here("inspect", str(moe_plan), *o) for o in ((*s, *m), s, m))
    assert both[1] == order[1] + memory[1] != order[1] != memory[1]
    exit_code, stdout, _ = pwc_here("inspect", str(moe_plan), "--ir", "place")
    assert exit_code == 0 and 'pw.phase = "place"' in stdout


def test_a_mismatch_with_the_reference_exits_with_1(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pathways.cli.run.run_reference", lambda plan, arguments: [np.zeros(8, np.float32), np.zeros(3, np.float32)]
    )
    exit_code, _, stderr = pwc_here("run", f"{small}:step", "--reference")
    assert exit_code == 1 and "PWC0804" in stderr


def test_help_lists_every_command_without_loading_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise AssertionError(f"{name} is loaded")

    monkeypatch.setattr("pathways.cli.main.import_module", load)
    exit_code, stdout, _ = pwc_here("--help")
    assert exit_code == 0
    shown = {name: line for name, _, line in (row.strip().partition(" ") for row in stdout.splitlines())}
    assert all(shown[name].strip() == line for name, (_, line) in COMMANDS.items())
