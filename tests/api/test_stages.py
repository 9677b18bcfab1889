"""Tests the repr, summary, costs and memory of stages of a program, and the warning of a schedule without effect."""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.pipelines import pipe
from support.processes import pwc_here

import pathways as pw
from pathways.dialect.plan.memory import peak

devices = pw.make_virtual_device_set()
meshes = [devices.add_slice(devices=2).mesh("d") for _ in range(2)]
X = np.arange(16, dtype=np.float32).reshape(4, 4)
first, second = (jax.jit(lambda w, x: jnp.tanh(x @ w), in_shardings=NamedSharding(m, P("d"))) for m in meshes)


@pw.program(donate_argnames="w", static_argnames="times")
def step(w: Any, x: Any, times: int = 1) -> Any:
    return second(w, first(w, x)) * times, w + 1


def statistics(scale: Any, xs: Any) -> Any:
    """A loop over microbatches, each of which depends on the one before: a schedule has nothing to reorder."""

    def body(s: Any, x: Any) -> Any:
        (a, x), (b, y) = first_scaled(s[0], x), second_scaled(s[1], x)
        return (a, b), (x * y).sum()

    return lax.scan(body, scale, xs)


first_scaled, second_scaled = (
    jax.jit(lambda s, x: (s * 0.9 + x.mean(), x * s), in_shardings=NamedSharding(m, P())) for m in meshes
)
SCALED = (np.float32(1),) * 2, np.ones((4, 8), np.float32)


@pytest.mark.long("more schedules of the same kind", keep=("gpipe",))
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zero-bubble"])
def test_a_schedule_without_effect_warns(schedule: str) -> None:
    lowered = pw.program(statistics).lower(*SCALED)
    with pytest.warns(UserWarning, match=f"schedule '{schedule}' changes nothing in statistics: no loop") as caught:
        compiled = lowered.compile(schedule=schedule)
    assert caught[0].filename == __file__
    assert f"schedule {schedule}: no loop over microbatches" in compiled.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered.compile()
        pipe(slices=2, microbatches=4).lowered().compile(schedule="1f1b", remat="always")  # a note, but no warning
        pipe(slices=2, microbatches=4).lowered().compile(schedule=schedule if schedule != "interleaved" else "gpipe")


def test_a_warning_without_a_user_line_is_printed_as_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pathways.api.warn.caller", lambda: None)
    pw.program(statistics).lower(*SCALED).compile(schedule="1f1b")
    assert capsys.readouterr().err.startswith("note: schedule '1f1b' changes nothing in statistics")


def test_the_summary_equals_the_output_of_pwc_compile(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "samples" / "mixture_of_experts.py"
    plan = tmp_path / "plan.bin"
    exit_code, printed, _ = pwc_here("compile", str(source), "-o", str(plan))
    assert exit_code == 0
    lines = printed.splitlines()
    lines = lines[: next(i for i, line in enumerate(lines) if line.startswith("time"))]
    loaded = pw.load(plan)
    assert loaded.summary().splitlines() == lines  # a file holds no times
    here = step.lower(X, X).compile().summary()
    assert here.startswith("program  step for cpu: 2 inputs, 2 results") and "time     " in here


def test_reprs_show_arguments_results_slices_and_signatures(tmp_path: Path) -> None:
    program = pw.program(lambda w, *, x: first(w, x))
    assert repr(program).startswith(f"<pw.Program <lambda>(w, *, x) at {__file__}:")
    assert repr(program).endswith("signatures compiled: 0>")
    lowered = step.lower(X, X, times=2)
    assert repr(lowered) == "<pw.Lowered step: 2 inputs, 2 results; slices s0 of 2, s1 of 2>"
    compiled = lowered.compile("islands=2,devices=2")
    shown = "<pw.Compiled step(w, x), times=2 compiled in, for cpu: 2 inputs, 2 results, 3 calls on 2 islands>"
    assert repr(compiled) == shown
    compiled.save(tmp_path / "plan.bin")
    assert repr(pw.load(tmp_path / "plan.bin")) == repr(compiled)
    program(X, x=X)
    assert repr(program).endswith("signatures compiled: 1>")


def test_cost_analysis_uses_the_keys_of_jax(tmp_path: Path) -> None:
    compiled = step.lower(X, X).compile("islands=2,devices=2")
    jax_one = jax.jit(lambda w, x: jnp.tanh(x @ w)).lower(X, X).compile().cost_analysis()
    assert jax_one is not None
    found = compiled.cost_analysis()
    assert set(found) == {"flops", "transcendentals", "bytes accessed"}
    assert found["transcendentals"] == 2 * jax_one["transcendentals"]
    assert found["flops"] >= 2 * 2 * 4 * 4 * 4 and found["bytes accessed"] > 0
    islands = [s.island for s in compiled.plan.streams]
    by_island = [compiled.cost_analysis(island) for island in islands]
    assert {k: sum(c[k] for c in by_island) for k in found} == found
    assert all(c["transcendentals"] == jax_one["transcendentals"] for c in by_island)
    compiled.save(tmp_path / "plan.bin")
    assert pw.load(tmp_path / "plan.bin").cost_analysis() == found
    with pytest.raises(pw.PathwaysError, match="PWC0104"):
        compiled.cost_analysis("island9")


def test_memory_analysis_uses_the_attribute_names_of_jax() -> None:
    compiled = step.lower(X, X).compile("islands=2,devices=2")
    whole = compiled.memory_analysis()
    names = [f"{n}_size_in_bytes" for n in ("argument", "output", "alias", "temp", "generated_code")]
    assert all(hasattr(whole, name) for name in (*names, "peak_memory_in_bytes"))
    for stream in compiled.plan.streams:
        found = compiled.memory_analysis(stream.island)
        assert found.island == stream.island
        assert found.peak_memory_in_bytes == peak(compiled.plan, stream.island).bytes <= whole.peak_memory_in_bytes
        held = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
        assert found.peak_memory_in_bytes <= held + found.temp_size_in_bytes
    sizes = [compiled.memory_analysis(s.island) for s in compiled.plan.streams]
    assert sum(s.argument_size_in_bytes for s in sizes) >= 2 * X.nbytes // 2
    assert sum(s.alias_size_in_bytes for s in sizes) > 0
    with pytest.raises(pw.PathwaysError, match="PWC0104"):
        compiled.memory_analysis("nowhere")


def test_cost_analysis_covers_host_callbacks_and_empty_programs() -> None:
    def add_one_on_the_host(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    placed = jax.jit(add_one_on_the_host, in_shardings=NamedSharding(meshes[0], P()))
    compiled = pw.program(lambda x: placed(x) * 2).lower(X).compile()
    assert compiled.cost_analysis()["bytes accessed"] > 0
    assert np.allclose(compiled(X), (X + 1) * 2)
    nothing = pw.program(lambda x: x).lower(X).compile()
    assert nothing.cost_analysis()["flops"] == 0
    assert nothing.memory_analysis().temp_size_in_bytes == 0
