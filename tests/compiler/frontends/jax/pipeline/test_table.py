"""Tests the table of stages: what each row says, and how it is printed."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from support.pipelines import slices

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.frontends.jax.pipeline.table import StageRow, StageTable
from pathways.dialect.topology import parse_topology

_lax: Any = lax
WIDTH, ROWS = 8, 4
X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
W = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
ACTIVATION, WEIGHT = 4 * ROWS * WIDTH, 4 * WIDTH * WIDTH
PRODUCT, EACH = 2 * ROWS * WIDTH * WIDTH, ROWS * WIDTH


def block(number: int, x: Any, w: Any) -> Any:
    with jax.named_scope(f"block_{number}"):
        return _lax.tanh(_lax.dot(x, w))


def loss(params: Any, x: Any) -> Any:
    for number, w in enumerate(params):
        x = block(number, x, w)
    return x


def row(number: int, share: float, **other: Any) -> StageRow:
    given: dict[str, Any] = {"bytes_in": 2048, "bytes_out": 0, "parameters": 3 << 20, "memory": 5 << 30, "seconds": 1.0}
    return StageRow(number, f"s{number}", 1.5, 1234567.0, share, **{**given, **other}, begins="m.py:3", module="net/b")


def test_a_row_says_what_its_stage_costs() -> None:
    made = slices(3)
    table = pw.pipeline(loss, made, cuts=[1, 2, 1]).stages([W] * 4, X)
    work = PRODUCT + EACH
    assert [r.number for r in table.rows] == [0, 1, 2]
    assert [r.slice for r in table.rows] == [s.name for s in made]
    assert [r.layers for r in table.rows] == [1, 2, 1]
    assert [r.flops for r in table.rows] == [work, 2 * work, work]
    assert [r.share for r in table.rows] == [0.25, 0.5, 0.25]
    assert [r.bytes_in for r in table.rows] == [0, ACTIVATION, ACTIVATION]
    assert [r.bytes_out for r in table.rows] == [ACTIVATION, ACTIVATION, 0]
    assert [r.parameters for r in table.rows] == [WEIGHT, 2 * WEIGHT, WEIGHT]
    kept = [2 * ACTIVATION, (2 + 1) * ACTIVATION, (1 + 1) * ACTIVATION]  # of tanh, the batch, and what comes in
    assert [r.memory - 4 * r.parameters for r in table.rows] == kept
    assert [r.seconds for r in table.rows] == [3 * work, 6 * work, 3 * work]
    assert [r.module for r in table.rows] == ["block_0", "block_1", "block_3"]
    line = inspect.getsourcelines(block)[1] + 2
    assert all(r.begins.endswith(f"test_table.py:{line}") for r in table.rows)
    assert (table.loss, table.microbatches, table.how) == ("loss", 1, "as cuts= states")
    assert (table.distinct, table.runner_up, table.notes) == (2, "", ())


def test_a_table_counts_one_microbatch() -> None:
    rows = jax.ShapeDtypeStruct((4 * ROWS, WIDTH), jnp.float32)

    def mean(weights: Any, x: Any) -> Any:
        return loss(weights, x).mean()

    table = pw.pipeline(mean, slices(2), microbatches=4, cuts=[2, 2]).stages([W] * 4, rows)
    one = pw.pipeline(mean, slices(2), cuts=[2, 2]).stages([W] * 4, X)
    assert table.microbatches == 4
    assert [r.flops for r in table.rows] == [r.flops for r in one.rows]
    assert [r.bytes_out for r in table.rows] == [r.bytes_out for r in one.rows]
    kept = [[r.memory - 4 * r.parameters for r in t.rows] for t in (table, one)]
    assert kept[0] == [4 * n for n in kept[1]], "four are in flight"


def test_stages_with_few_operations_are_remarked_on() -> None:
    table = pw.pipeline(loss, slices(2), cuts=[1, 15]).stages([W] * 16, X)
    (note,) = table.notes
    assert note.startswith("note: stage 0 has 6.2% of the work")
    enough = pw.pipeline(loss, slices(2), cuts=[1, 7]).stages([W] * 8, X)
    assert enough.notes == (), "a quarter of the mean"


def test_the_next_best_cut_is_compared_with_the_one_taken() -> None:
    """The most even place is between two products of twice the width."""
    wide = jax.ShapeDtypeStruct((WIDTH, 2 * WIDTH), jnp.float32)
    tall = jax.ShapeDtypeStruct((2 * WIDTH, WIDTH), jnp.float32)

    def uneven(params: Any, x: Any) -> Any:
        for number, w in enumerate(params):
            with jax.named_scope(f"block_{number}"):
                x = _lax.dot(x, w)
        return x

    params = [W] * 30 + [wide, tall] + [W] * 29
    table = pw.pipeline(uneven, slices(2)).stages(params, X)
    assert table.how == "fewest bytes, within 8% of the least time"
    assert [r.module for r in table.rows] == ["block_0", "block_30"]
    ratio = (30 * PRODUCT + 2 * PRODUCT) / (31 * PRODUCT + 2 * PRODUCT)
    assert table.runner_up == (
        f"next best: cuts at block_31: slowest stage takes {ratio:.2f} times as long, "
        f"{2 * ACTIVATION} B over the cuts instead of {ACTIVATION} B, 2 distinct stages"
    )


def test_the_next_best_cut_of_a_model_without_modules_is_at_a_line() -> None:
    """Only one place has few bytes, and it is not in the middle."""
    wide = jax.ShapeDtypeStruct((WIDTH, 2 * WIDTH), jnp.float32)
    tall = jax.ShapeDtypeStruct((2 * WIDTH, WIDTH), jnp.float32)

    def plain(params: Any, x: Any) -> Any:
        for w in params:
            x = _lax.dot(x, w)
        return x

    table = pw.pipeline(plain, slices(2)).stages([W] * 30 + [wide, tall] + [W] * 29, X)
    line = inspect.getsourcelines(plain)[1] + 2
    assert table.runner_up.startswith("next best: cuts at ") and f"test_table.py:{line}: slowest" in table.runner_up


def test_seconds_are_of_the_rate_of_the_topology() -> None:
    with compiling(Target.of(parse_topology("islands=2,devices=1,flops=1e3,efficiency=0.5"), "")):
        table = pw.pipeline(loss, slices(2), cuts=[1, 1]).stages([W] * 2, X)
    assert [r.seconds for r in table.rows] == [3 * (PRODUCT + EACH) / 5e2] * 2


def test_a_table_is_printed_in_columns() -> None:
    table = StageTable("net", 8, (row(0, 0.254), row(1, 0.746)), 2, "so", "other", ("note",))
    first, head, *rows = str(table).split("\n")
    assert first == "net: 2 stages, 2 distinct, 8 microbatches; cut here: so"
    names = [
        "stage",
        "slice",
        "layers",
        "flops",
        "share",
        "in",
        "out",
        "parameters",
        "memory",
        "begins at",
        "in module",
    ]
    assert [c.strip() for c in head.split("  ") if c.strip()] == names
    cells = ["0", "s0", "1.5", "1.23e+06", "25%", "2.0 KiB", "0 B", "3.0 MiB", "5.0 GiB", "m.py:3", "net/b"]
    assert [c.strip() for c in rows[0].split("  ") if c.strip()] == cells
    assert rows[0].index("m.py:3") == rows[1].index("m.py:3") == head.index("begins at")
    assert rows[2:] == ["other", "note"]
    assert not any(line.endswith(" ") for line in str(table).split("\n"))


def test_one_microbatch_is_no_plural_and_an_empty_runner_up_no_line() -> None:
    text = str(StageTable("net", 1, (row(0, 1.0),), 1, "so", "", ()))
    assert "1 microbatch;" in text and len(text.split("\n")) == 3
