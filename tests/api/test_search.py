"""Tests `pw.search`: its first row is the fastest of all plans, and its choice runs and equals plain JAX."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.searched import LAYERS, ROWS, WIDTH, batch, init, loss, random_init

import pathways as pw
from pathways.compiler.search.candidates import Space, candidates
from pathways.dialect.choice import SplitChoice, load_choice
from pathways.dialect.topology import PRESETS, parse_topology

TABLE = Path(__file__).parents[1] / "golden" / "search-table.txt"
TOPOLOGY = "islands=2,devices=2,flops=1e9,memory=1GiB"


def refused(*arguments: Any, **options: Any) -> pw.PathwaysError:
    """Returns the error that `pw.search` raises."""
    with pytest.raises(pw.PathwaysError) as caught:
        pw.search(*arguments, **options)
    return caught.value


def test_the_printed_table_equals_the_golden_file(request: pytest.FixtureRequest) -> None:
    text = str(pw.search(loss, init(), batch(), topology=TOPOLOGY, compiled=0)) + "\n"
    if request.config.getoption("--update-golden"):
        TABLE.write_text(text)
    assert text == TABLE.read_text()


@pytest.mark.long("all plans of a program are compiled: 10 s")
def test_the_first_row_is_the_fastest_of_all_plans() -> None:
    """Compiles every candidate, so that the time of each comes from its plan."""
    space = Space(ROWS, LAYERS, schedules=("1f1b",), chunks=(1,), max_microbatches=4)
    choices = [c for c in candidates(parse_topology(TOPOLOGY), space) if c.islands]
    every = pw.search(loss, init(), batch(), topology=TOPOLOGY, only=choices, compiled=len(choices))
    plans = {row.choice.split: row for row in every.rows}
    assert len(every.rows) == len(choices) > 10 and all(r.plan and not r.plan.refused for r in every.rows)
    for row in every.rows:
        assert row.seconds == pytest.approx(row.prediction.seconds, rel=0.15), row
    best = pw.search(loss, init(), batch(), topology=TOPOLOGY, max_microbatches=4, schedules=["1f1b"])
    assert best.rows[0].plan and best.rows[0].seconds <= min(r.seconds for r in plans.values()) * (1 + 1e-9)


@pytest.mark.long("more presets of the same kind", keep=("gpu-hosts-2", "gpu-host"))
@pytest.mark.parametrize("preset", PRESETS)
def test_a_search_on_each_preset_finds_a_plan(preset: str) -> None:
    found = pw.search(loss, init(), batch(), topology=preset, compiled=1)
    seconds = [row.seconds for row in found.rows]
    assert found.rows[0].plan and seconds == sorted(seconds) and len(found.rows) <= 8
    told = sum(d.count for d in found.dropped)
    assert told + len(found.rows) == found.tried


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("0.001",))
@pytest.mark.parametrize("seconds_of_call", [0.0, 1e-3])
def test_a_choice_runs_and_equals_plain_jax(seconds_of_call: float, tmp_path: Path) -> None:
    path = tmp_path / "choice.toml"
    found = pw.search(loss, init(), batch(), topology=TOPOLOGY, call_seconds=seconds_of_call, compiled=0)
    assert found.save(path) == path.stat().st_size
    assert load_choice(path) == found.best and f"of {ROWS}" in path.read_text().splitlines()[0]
    arguments = random_init(), np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    expected = jax.value_and_grad(loss)(*arguments)
    for choice in (found.best, str(path)):
        step = pw.program(jax.value_and_grad(pw.pipeline(loss, choice=choice)))
        compiled = step.lower(*arguments).compile(TOPOLOGY, schedule=found.best.schedule, remat=found.best.remat)
        value, gradients = compiled(*arguments)
        np.testing.assert_allclose(value, expected[0], rtol=1e-5)
        for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_a_choice_sets_microbatches_cuts_and_param_specs() -> None:
    choice = pw.SplitChoice(2, 1, 1, 2, 4, "1f1b", islands=("island0", "island1"), cuts=(1, 3))
    split = replace(choice, param_specs={r"'up'": ("", "model"), r"'down'": ("model",)})
    table = pw.pipeline(loss, choice=split).stages(init(), batch())
    assert table.microbatches == 4 and [r.layers for r in table.rows] == [1, 3]
    whole = pw.pipeline(loss, choice=choice).stages(init(), batch())
    assert sum(r.parameters for r in table.rows) * 2 == sum(r.parameters for r in whole.rows)


def test_a_program_is_searched_through_the_pipeline_that_it_calls() -> None:
    trained = pw.pipeline(loss)

    def step(params: Any, rows: Any) -> Any:
        value, gradients = jax.value_and_grad(trained)(params, rows)
        return value, jax.tree.map(lambda p, g: p - g, params, gradients)

    found = pw.search(pw.program(step, example_args=(init(), batch())), topology=TOPOLOGY, compiled=1)
    alone = pw.search(loss, init(), batch(), topology=TOPOLOGY, compiled=0)
    assert found.tried == alone.tried and found.rows[0].plan and not found.rows[0].plan.refused
    other = refused(pw.program(step, example_args=(init(), batch())), topology=TOPOLOGY, batch=2 * ROWS)
    assert other.code == "PWC0117" and f"a program for {ROWS}" in str(other)


def test_a_memory_limit_drops_candidates_that_need_more() -> None:
    free = pw.search(loss, init(), batch(), topology=TOPOLOGY, compiled=0)
    most = max(row.memory for row in free.rows)
    tight = pw.search(loss, init(), batch(), topology=f"{TOPOLOGY.replace('1GiB', str(int(most / 2)))}", compiled=0)
    assert all(row.fits and row.memory <= most / 2 for row in tight.rows)
    assert any("memory" in d.reason and d.count for d in tight.dropped)


def test_a_topology_too_small_for_every_candidate_is_refused() -> None:
    error = refused(loss, init(), batch(), topology="devices=2,memory=1KiB")
    assert error.code == "PWC0118" and "do not fit the memory" in str(error)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((), {}, "0 example arguments"),
        ((init(), batch()), {"batch_argnums": 2}, "2 example arguments"),
        ((init(), np.float32(1)), {}, "a batch with rows"),
        (((), batch()), {}, "0 parameters"),
    ],
)
def test_arguments_that_cannot_be_searched_are_refused(arguments: Any, options: Any, says: str) -> None:
    error = refused(loss, *arguments, topology="devices=2", **options)
    assert error.code == "PWC0117" and says in str(error)


def test_a_program_without_a_pipeline_is_refused() -> None:
    error = refused(pw.program(lambda p, x: loss(p, x), example_args=(init(), batch())), topology="devices=2")
    assert error.code == "PWC0117" and "calls no pw.pipeline" in str(error)


def test_a_pipeline_without_slices_or_choice_is_refused() -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        pw.program(pw.pipeline(loss)).lower(init(), batch())
    assert caught.value.code == "PWC0116" and "test_search.py" in str(caught.value)


def test_a_pipeline_with_both_slices_and_choice_is_refused() -> None:
    slices = [pw.make_virtual_device_set().add_slice(devices=1)]
    with pytest.raises(pw.PathwaysError, match="PWC0112"):
        pw.pipeline(loss, slices, choice=pw.SplitChoice())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": -4}, "batch=-4"),
        ({"batch": 0}, "batch=0"),
        ({"top": 0}, "top=0"),
        ({"schedules": ["1F1B"]}, "gpipe, 1f1b"),
        ({"only": [SplitChoice(schedule="backward")]}, "gpipe, 1f1b"),
        ({"only": [SplitChoice(islands=("elsewhere",))]}, "island0, island1"),
        ({"only": [SplitChoice(microbatches=3)]}, f"3 microbatches of {ROWS} rows"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], said: str) -> None:
    error = refused(loss, init(), batch(), topology=TOPOLOGY, compiled=0, **options)
    assert error.code == "PWC0117" and said in str(error)


def test_a_loss_whose_operations_depend_on_its_rows_is_cut_per_row_count() -> None:
    weights = [np.eye(8, dtype=np.float32)] * 4

    def row_by_row(weights: Any, x: Any) -> Any:
        def one(row: Any) -> Any:
            for w in weights:
                row = jax.numpy.tanh(row @ w)
            return row.mean()

        return jax.lax.map(one, x).mean()

    rows = np.ones((16, 8), np.float32)
    many, one = (SplitChoice(2, microbatches=n, islands=("island0", "island1")) for n in (16, 1))
    machines: Any = {"topology": "islands=2,devices=2,flops=1e12,memory=1GiB", "compiled": 0}
    both = pw.search(row_by_row, weights, rows, only=[many, one], **machines)
    alone = pw.search(row_by_row, weights, rows, only=[one], **machines)
    found = next(row.seconds for row in both.rows if row.choice.microbatches == 1)
    assert found == alone.rows[0].seconds
    assert pw.search(row_by_row, weights, rows, **machines).rows


def test_an_invalid_choice_is_refused_and_a_search_result_accepted() -> None:
    for wrong, code in ((5, "PWC0112"), ([], "PWC0112")):
        with pytest.raises(pw.PathwaysError, match=code):
            pw.pipeline(loss, choice=wrong)
    with pytest.raises(pw.PathwaysError, match=r"PWC0112.*\n(.*\n)*.*a choice states its microbatches"):
        pw.pipeline(loss, choice=SplitChoice(), microbatches=2)
    found = pw.search(loss, init(), batch(), topology=TOPOLOGY, compiled=0)
    assert pw.pipeline(loss, choice=found).options.microbatches.count == found.best.microbatches
