"""Tests how schedules are printed: the order of every slice, and the comparison of schedules."""

import csv
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import pwc_here

import pathways as pw
from pathways.cli.comparison import comparison
from pathways.compiler.compare_schedules import Alternative
from pathways.dialect.schedule_figures import Schedule

TIED = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw

slices = pw.make_virtual_device_set()
first, last = (NamedSharding(slices.add_slice(devices=2).mesh("x"), P()) for _ in range(2))
embed = jax.jit(lambda table, w, tokens: jnp.tanh(table[tokens] @ w), in_shardings=first)
head = jax.jit(lambda table, w, x: jax.nn.logsumexp((x @ w) @ table.T, -1).mean(), in_shardings=last)


def loss(params, tokens):
    table, a, b = params
    return head(table, b, embed(table, a, tokens))


@pw.program(example_args=((jnp.ones((16, 8)), jnp.ones((8, 8)), jnp.ones((8, 8))), jnp.zeros((4, 2, 3), int)))
def step(params, batch):
    def body(total, tokens):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(params, tokens)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, params), batch)[0]
"""


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    """Writes a model whose first and last stage share weights, so each microbatch adds the gradients of both."""
    path = tmp_path / "tied.py"
    path.write_text(TIED)
    return path


@pytest.mark.long(
    "a model of another library is compiled: 1 to 60 s each", keep=("merged-[1z]*-tied", "apart-gpipe-tied")
)
@pytest.mark.parametrize("source", ["tied", "train_lm"])
@pytest.mark.parametrize("schedule", ["program", "gpipe", "1f1b", "zero-bubble"])
@pytest.mark.parametrize("merge", [[], ["--no-merge"]], ids=["merged", "apart"])
def test_every_action_is_printed_once_in_the_order_of_the_table(
    source: str, schedule: str, merge: list[str], tied: Path, root: Path, tmp_path: Path
) -> None:
    path = tied if source == "tied" else root / "samples" / "train_lm.py"
    plan, table = tmp_path / "plan.bin", tmp_path / "table.csv"
    options = ("--schedule", schedule, "--emit-schedule", str(table), *merge)
    exit_code, _, stderr = pwc_here("compile", str(path), "-o", str(plan), *options)
    assert exit_code == 0, stderr
    with table.open() as file:
        wanted = [[cell for cell in row if cell] for row in csv.reader(file)]
    _, stdout, _ = pwc_here("inspect", str(plan), "--schedule")
    rows = [re.split(r"[ +]+", line)[1:] for line in stdout.splitlines()[1:]]
    assert rows == wanted and all(len(set(row)) == len(row) for row in rows)


def outcome(name: str, units: float, bubble: float, seconds: float) -> Alternative:
    schedule = Schedule(name, "", 2, 2, 4, bubble, 0.1)
    return Alternative(name, schedule, {"island0": 2048, "island1": 1024}, "", units, seconds, waits=0.3)


def test_the_comparison_starts_with_step_times_and_explains_shorter_runs() -> None:
    known = [outcome("1f1b", 15, 0.2, 273e-6), outcome("zero-bubble", 13, 0.231, 0.000244)]
    refused = Alternative("interleaved", None, {}, "PWC0404: it does not suit")
    lines = comparison([*known, refused]).splitlines()
    assert re.split(r"  +", lines[0])[:4] == ["compared", "step (simulated)", "devices wait", "bubble"]
    assert re.split(r"  +", lines[1])[:4] == ["1f1b", "273 us", "30.0%", "20.0%"]
    assert lines[1].endswith("2.0 KiB on island0")
    assert re.split(r"  +", lines[2])[:4] == ["zero-bubble", "244 us", "30.0%", "23.1%"]
    assert lines[3].split()[:2] == ["interleaved", "-"] and lines[3].endswith("it does not suit")
    assert "zero-bubble: 23.1% of 13 units of time is less than 20.0% of 15 (1f1b)" in lines[4]
    assert lines[5].strip().startswith("(B counts 2 units")
    equal = [outcome("1f1b", 15, 0.2, 1.5), outcome("gpipe", 15, 0.21, 2.0), outcome("worse", 16, 0.25, 2.0)]
    assert len(comparison(equal).splitlines()) == 4  # no explanation: larger bubbles belong to longer runs


def test_units_of_time_equal_those_of_textbooks() -> None:
    """S stages, M microbatches: 3 (M + S - 1) for GPipe and 1F1B; the first stage of zero-bubble has only W."""
    from pathways.compiler.compare_schedules import compare_schedules
    from pathways.compiler.pass_manager import Options
    from pathways.compiler.passes.base import Session
    from pathways.dialect.topology import parse_topology

    made = pw.make_virtual_device_set()
    first, last = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    one = jax.jit(lambda w, x: jnp.tanh(x @ w), in_shardings=first)
    two = jax.jit(lambda w, x: jnp.tanh(x @ w).mean(), in_shardings=last)

    @pw.program
    def step(ws: list[jax.Array], xs: jax.Array) -> object:
        def body(total: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], None]:
            gradient = jax.grad(lambda ws: two(ws[1], one(ws[0], x)))(ws)
            return [a + b for a, b in zip(total, gradient, strict=True)], None

        return jax.lax.scan(body, [jnp.zeros((4, 4))] * 2, xs)[0]

    lowered = step.lower([jnp.ones((4, 4))] * 2, jnp.ones((4, 2, 4)))
    session = Session(parse_topology("islands=2,devices=1"))
    found = compare_schedules(lowered.copied_program(), session, Options(), lowered.constants)
    units = {o.name: o.units for o in found}
    assert units["gpipe"] == units["1f1b"] == units["interleaved"] == 15 and units["zero-bubble"] == 13


def test_pwc_compile_prints_the_comparison(tied: Path) -> None:
    exit_code, stdout, stderr = pwc_here("compile", str(tied), "--compare-schedules")
    assert exit_code == 0, stderr
    assert "compared     step (simulated)" in stdout and "zero-bubble: " in stdout and "(B counts 2 units" in stdout
