"""Tests how `pwc simulate` varies the microbatches of a source, and sweeps over its schedules and placements."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import pytest
from support.codes import code_of
from support.processes import pwc_here

import pathways as pw
from pathways.cli.variants_table import variants_table
from pathways.compiler.simulate.estimate import Estimated

SPEC = ("--topology", "islands=2,devices=2,flops=1e8,call_us=100")
MODEL = """
import jax
import jax.numpy as jnp
import pathways as pw

made = pw.make_virtual_device_set()
slices = [made.add_slice(devices=1) for _ in range(4)]


def loss(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


staged = pw.pipeline(loss, slices, batch_argnums=(1,), microbatches=MICROBATCHES)
rows = jax.ShapeDtypeStruct((16, 16), "float32")


@pw.program(example_args=([rows] * 8, rows))
def step(ws, x):
    return jax.value_and_grad(staged)(ws, x)
"""
ALONE = """
import jax
import pathways as pw


@pw.program(example_args=(jax.ShapeDtypeStruct((8, 4), "float32"),))
def step(x):
    return x * 2
"""


def write(folder: Path, microbatches: int) -> str:
    path = folder / f"of_{microbatches}.py"
    path.write_text(MODEL.replace("MICROBATCHES", str(microbatches)))
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("variants"), 2)


def seconds(*arguments: str) -> float:
    code, printed, stderr = pwc_here("simulate", *arguments, *SPEC, "--json")
    assert code == 0, stderr
    return json.loads(printed)["seconds"]


@pytest.mark.long("another number: 2 s", keep=("8",))
@pytest.mark.parametrize("count", [1, 8])
def test_a_replaced_number_of_microbatches_equals_a_stated_one(model: str, tmp_path: Path, count: int) -> None:
    assert seconds(model, "--microbatches", str(count)) == seconds(write(tmp_path, count))
    assert seconds(model, "--microbatches", "2") == seconds(model) != seconds(model, "--microbatches", "8")


def test_other_numbers_are_compared_with_what_refuses_them(model: str) -> None:
    code, printed, stderr = pwc_here("simulate", model, *SPEC, "--compare-microbatches", "4,3,8")
    assert code == 0, stderr
    rows = [line.split()[:3] for line in printed.partition("compared with")[2].splitlines() if line.strip()]
    assert [row[:2] for row in rows] == [["4", "microbatches"], ["3", "microbatches"], ["8", "microbatches"]]
    assert rows[1][2] == "refused" and "PWC0112" in printed


def test_a_sweep_ranks_and_draws_all_combinations(model: str, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    compared = ("--compare-placements", "--compare-microbatches", "4,8", "--schedule", "1f1b")
    options = (model, *SPEC, *compared, "--sweep", "--picture", str(picture))
    code, printed, stderr = pwc_here("simulate", *options, "--json")
    assert code == 0, stderr
    others = json.loads(printed)["others"]
    assert len(others) == 5 * 3 - 1
    assert others["placement balanced, 8 microbatches"]["seconds"] == seconds(
        model, "--schedule", "1f1b", "--placement", "balanced", "--microbatches", "8"
    )
    drawn = ElementTree.parse(picture).getroot()
    texts = [element.text for element in drawn.iter() if element.text]
    assert {"2 microbatches", "8 microbatches", "placement balanced"} <= set(texts)
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}rect"))) == 5 * 3
    assert texts.count("refused") == sum(isinstance(other, str) for other in others.values()) == 3


@pytest.mark.long("25 plans are compiled")
def test_the_fastest_of_a_sweep_come_first_and_are_found_with_few_simulations(model: str, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    options = ("--compare-schedules", "--compare-microbatches", "1,4,8,16", "--sweep")
    code, printed, stderr = pwc_here("simulate", model, *SPEC, *options)
    assert code == 0, stderr
    table = printed.partition("24 other combinations, the fastest first\n")[2].splitlines()
    times = [float(line.partition(" ms ")[0].split()[-1]) for line in table if " ms " in line]
    assert len(times) == 20 and times == sorted(times) and "  ... and 4 slower ones: --json" in printed
    code, said, stderr = pwc_here("simulate", model, *SPEC, *options, "--top", "1", "--picture", str(picture), "--json")
    assert code == 0, stderr
    others = json.loads(said)["others"]
    estimated = [name for name, other in others.items() if "estimated_seconds" in other]
    fastest = min((other["seconds"], name) for name, other in others.items() if name not in estimated)
    assert len(others) == 24 and 0 < len(estimated) <= 5 and fastest[1] in table[0]
    assert picture.read_text().count("<title>estimated</title>") == len(estimated)


def test_a_table_tells_how_many_are_estimated() -> None:
    others = {"2 microbatches": Estimated(1.0), "4 microbatches": Estimated(2.0), "3 microbatches": "PWC0112: no"}
    table = variants_table(None, others, sweep=True, shown=5, note=", estimated within 3.0%")
    assert table == [
        "3 other combinations, the fastest first",
        "  ... and 2 slower ones, estimated within 3.0%: --json, --picture",
        "  1 refused (PWC0112: no)",
    ]


def test_numbers_that_do_not_divide_the_batch_are_refused_and_not_estimated(model: str) -> None:
    """The batch has 16 rows, and 8 is the only number that divides it."""
    numbers = (3, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    options = ("--compare-microbatches", ",".join(map(str, numbers)), "--sweep", "--top", "2", "--json")
    code, printed, stderr = pwc_here("simulate", model, *SPEC, *options)
    assert code == 0, stderr
    others = json.loads(printed)["others"]
    assert len(others) == len(numbers) and others.pop("8 microbatches")["seconds"]
    assert all("PWC0112" in other for other in others.values())


def test_few_combinations_are_all_simulated(model: str) -> None:
    options = ("--compare-microbatches", "4,3", "--sweep", "--top", "5", "--json")
    code, printed, stderr = pwc_here("simulate", model, *SPEC, *options)
    assert code == 0, stderr
    others = json.loads(printed)["others"]
    assert others["4 microbatches"]["seconds"] and "PWC0112" in others["3 microbatches"]


def test_a_sweep_counts_what_is_refused(model: str, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    options = ("--compare-schedules", "--compare-microbatches", "3", "--sweep", "--picture", str(picture))
    _, printed, _ = pwc_here("simulate", model, *SPEC, *options)
    assert "  5 refused (PWC0112" in printed and picture.exists()


def test_a_refused_choice_does_not_hide_the_rest_of_a_sweep(tmp_path: Path) -> None:
    """The source states 3 microbatches for 16 rows."""
    source, picture = write(tmp_path, 3), tmp_path / "sweep.svg"
    options = ("--compare-microbatches", "4", "--sweep", "--picture", str(picture), "--json")
    code, printed, stderr = pwc_here("simulate", source, *SPEC, *options)
    assert code == 2 and "PWC0112" in stderr and picture.exists()
    (other,) = json.loads(printed)["others"].values()
    assert other["seconds"] == seconds(source, "--microbatches", "4")


def test_the_stated_number_is_simulated_once(model: str) -> None:
    _, printed, _ = pwc_here("simulate", model, *SPEC, "--compare-microbatches", "2,4", "--sweep", "--json")
    assert list(json.loads(printed)["others"]) == ["4 microbatches"]


def test_a_dump_has_its_microbatches(model: str, tmp_path: Path) -> None:
    assert pwc_here("compile", model, *SPEC, "--dump-phases-to", str(tmp_path))[0] == 0
    code, _, stderr = pwc_here("simulate", str(next(tmp_path.glob("*.trace.mlir"))), "--compare-microbatches", "4")
    assert code == 2 and "PWC0801" in stderr and "a dump has its microbatches" in stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--compare-microbatches", "4,"),
        ("--compare-microbatches", "0"),
        ("--compare-microbatches", "four"),
        ("--microbatches", "0"),
        ("--sweep",),
        ("--compare-schedules", "--picture", "out.svg"),
        ("--compare-schedules", "--sweep", "--top", "3"),
        ("--compare-microbatches", "4", "--top", "3"),
    ],
)
def test_wrong_options_are_refused(model: str, options: tuple[str, ...]) -> None:
    code, _, stderr = pwc_here("simulate", model, *SPEC, *options)
    assert code == 2, stderr


def test_microbatches_are_refused_for_plans_and_for_programs_without_a_pipeline(moe_plan: Path, tmp_path: Path) -> None:
    for options in (("--microbatches", "4"), ("--compare-microbatches", "4"), ("--compare-schedules", "--sweep")):
        code, _, stderr = pwc_here("simulate", str(moe_plan), *options)
        assert code == 2 and "give the source in place of the plan" in stderr
    alone = tmp_path / "alone.py"
    alone.write_text(ALONE)
    for option in ("--microbatches", "--compare-microbatches"):
        code, _, stderr = pwc_here("simulate", str(alone), option, "4")
        assert code == 2 and "PWC0112" in stderr and "a program without pw.pipeline" in stderr


def test_a_lowered_program_is_simulated_with_other_microbatches() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (jnp.tanh(x @ w[0]) @ w[1]).mean()

    def lowered(count: int) -> Any:
        made = pw.make_virtual_device_set()
        slices = [made.add_slice(devices=1) for _ in range(2)]
        staged: Any = pw.pipeline(loss, slices, batch_argnums=(1,), microbatches=count)
        step: Any = pw.program(jax.value_and_grad(staged))
        return step.lower([jnp.ones((8, 8))] * 2, jnp.ones((8, 8)))

    two = lowered(2)
    assert two.simulate(SPEC[1], microbatches=4).seconds == lowered(4).simulate(SPEC[1]).seconds
    assert two.simulate(SPEC[1]).seconds == lowered(2).simulate(SPEC[1]).seconds
    for wrong in (0, -1, True, 2.0):
        assert code_of(lambda wrong=wrong: two.simulate(SPEC[1], microbatches=wrong)) == "PWC0112"
    with jax.enable_x64(True), pytest.warns(UserWarning, match="not cut again"):
        assert code_of(lambda: two.simulate(SPEC[1], microbatches=8)) == "PWC0112"
    plain: Any = pw.program(lambda x: x + 1)
    assert code_of(lambda: plain.lower(jnp.ones(4)).simulate(SPEC[1], microbatches=4)) == "PWC0112"
