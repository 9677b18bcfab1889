"""`pw.search`: its best is the best of all plans, and its choice runs and is equal to plain JAX."""

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
SMALL = "islands=2,devices=2,flops=1e9,memory=1GiB"


def refused(*arguments: Any, **options: Any) -> pw.PathwaysError:
    with pytest.raises(pw.PathwaysError) as caught:
        pw.search(*arguments, **options)
    return caught.value


def test_the_table(request: pytest.FixtureRequest) -> None:
    text = str(pw.search(loss, init(), batch(), topology=SMALL, compiled=0)) + "\n"
    if request.config.getoption("--update-golden"):
        TABLE.write_text(text)
    assert text == TABLE.read_text()


def test_the_best_is_the_best_of_all_plans() -> None:
    """All candidates are compiled, and their schedules played."""
    space = Space(ROWS, LAYERS, schedules=("1f1b",), chunks=(1,), most_microbatches=4)
    choices = [c for c in candidates(parse_topology(SMALL), space) if c.islands]
    every = pw.search(loss, init(), batch(), topology=SMALL, only=choices, compiled=len(choices))
    plans = {row.choice.split: row for row in every.rows}
    assert len(every.rows) == len(choices) > 10 and all(r.plan and not r.plan.refused for r in every.rows)
    for row in every.rows:
        assert row.seconds == pytest.approx(row.prediction.seconds, rel=0.15), row
    best = pw.search(loss, init(), batch(), topology=SMALL, max_microbatches=4, schedules=["1f1b"])
    assert best.rows[0].plan and best.rows[0].seconds <= min(r.seconds for r in plans.values()) * (1 + 1e-9)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_a_best(preset: str) -> None:
    found = pw.search(loss, init(), batch(), topology=preset, compiled=1)
    seconds = [row.seconds for row in found.rows]
    assert found.rows[0].plan and seconds == sorted(seconds) and len(found.rows) <= 8
    told = sum(d.count for d in found.dropped)
    assert told + len(found.rows) == found.tried


@pytest.mark.parametrize("seconds_of_call", [0.0, 1e-3])
def test_a_choice_runs_and_is_equal_to_plain_jax(seconds_of_call: float, tmp_path: Path) -> None:
    path = tmp_path / "choice.toml"
    found = pw.search(loss, init(), batch(), topology=SMALL, call_seconds=seconds_of_call, compiled=0)
    assert found.save(path) == path.stat().st_size
    assert load_choice(path) == found.best and f"of {ROWS}" in path.read_text().splitlines()[0]
    arguments = random_init(), np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    expected = jax.value_and_grad(loss)(*arguments)
    for choice in (found.best, str(path)):
        step = pw.program(jax.value_and_grad(pw.pipeline(loss, choice=choice)))
        compiled = step.lower(*arguments).compile(SMALL, schedule=found.best.schedule, remat=found.best.remat)
        value, gradients = compiled(*arguments)
        np.testing.assert_allclose(value, expected[0], rtol=1e-5)
        for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_a_choice_of_model_and_stages_is_pipelined_as_it_says() -> None:
    choice = pw.SplitChoice(2, 1, 1, 2, 4, "1f1b", islands=("island0", "island1"), cuts=(1, 3))
    split = replace(choice, param_specs={r"'up'": ("", "model"), r"'down'": ("model",)})
    table = pw.pipeline(loss, choice=split).stages(init(), batch())
    assert table.microbatches == 4 and [r.layers for r in table.rows] == [1, 3]
    whole = pw.pipeline(loss, choice=choice).stages(init(), batch())
    assert sum(r.parameters for r in table.rows) * 2 == sum(r.parameters for r in whole.rows)


def test_a_program_is_searched_by_the_pipeline_that_it_calls() -> None:
    trained = pw.pipeline(loss)

    def step(params: Any, rows: Any) -> Any:
        value, gradients = jax.value_and_grad(trained)(params, rows)
        return value, jax.tree.map(lambda p, g: p - g, params, gradients)

    found = pw.search(pw.program(step, example_args=(init(), batch())), topology=SMALL, compiled=1)
    alone = pw.search(loss, init(), batch(), topology=SMALL, compiled=0)
    assert found.tried == alone.tried and found.rows[0].plan and not found.rows[0].plan.refused
    other = refused(pw.program(step, example_args=(init(), batch())), topology=SMALL, batch=2 * ROWS)
    assert other.code == "PWC0117" and f"a program for {ROWS}" in str(other)


def test_less_memory_drops_what_needs_more() -> None:
    free = pw.search(loss, init(), batch(), topology=SMALL, compiled=0)
    most = max(row.memory for row in free.rows)
    tight = pw.search(loss, init(), batch(), topology=f"{SMALL.replace('1GiB', str(int(most / 2)))}", compiled=0)
    assert all(row.fits and row.memory <= most / 2 for row in tight.rows)
    assert any("memory" in d.reason and d.count for d in tight.dropped)


def test_nothing_fits() -> None:
    error = refused(loss, init(), batch(), topology="devices=2,memory=1KiB")
    assert error.code == "PWC0118" and "do not fit the memory" in str(error)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((), {}, "0 example arguments"),
        ((init(), batch()), {"batch_argnums": 2}, "2 example arguments"),
        ((init(), np.float32(1)), {}, "a batch with rows"),
        (((), batch()), {}, "0 of parameters"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: Any, options: Any, says: str) -> None:
    error = refused(loss, *arguments, topology="devices=2", **options)
    assert error.code == "PWC0117" and says in str(error)


def test_a_program_without_a_pipeline_is_refused() -> None:
    error = refused(pw.program(lambda p, x: loss(p, x), example_args=(init(), batch())), topology="devices=2")
    assert error.code == "PWC0117" and "calls no pw.pipeline" in str(error)


def test_a_pipeline_without_slices_wants_a_choice() -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        pw.program(pw.pipeline(loss)).lower(init(), batch())
    assert caught.value.code == "PWC0116" and "test_search.py" in str(caught.value)


def test_slices_and_a_choice_are_too_much() -> None:
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
def test_numbers_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    error = refused(loss, init(), batch(), topology=SMALL, compiled=0, **options)
    assert error.code == "PWC0117" and said in str(error)


def test_a_loss_that_has_other_operations_for_other_rows_is_cut_for_each() -> None:
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


def test_what_is_no_choice_is_refused() -> None:
    for wrong, code in ((5, "PWC0112"), ([], "PWC0112")):
        with pytest.raises(pw.PathwaysError, match=code):
            pw.pipeline(loss, choice=wrong)
    with pytest.raises(pw.PathwaysError, match=r"PWC0112.*\n(.*\n)*.*says how many microbatches"):
        pw.pipeline(loss, choice=SplitChoice(), microbatches=2)
    found = pw.search(loss, init(), batch(), topology=SMALL, compiled=0)
    assert pw.pipeline(loss, choice=found).options.microbatches.count == found.best.microbatches
