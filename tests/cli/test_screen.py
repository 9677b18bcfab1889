"""Tests that `pwc inspect` and `pwc run` print at most one screen of a large program, and everything with `--all`."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT, pwc_here

from pathways.cli.groups import ROWS, counted, grouped, keys
from pathways.cli.overview import overview
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Port
from pathways.dialect.plan.plan_file import load_plan

SCREEN_LINES = 50
"""Lines of a terminal."""


def port(name: str, donated: bool = False, island: str = "island0") -> Port:
    return Port(name, ArrayType((4, 2), "float32"), "float32", False, island, 0, donated)


STEPS = st.one_of(
    st.integers(0, 3).map(lambda n: f"[{n}]"),
    st.sampled_from("abc").map(lambda c: f"[{c!r}]"),
    st.sampled_from(["['it]s']", '["it\'s"]', "['a.b[0]']", "[<flat index 0>]"]),
    st.sampled_from(["mu", "nu"]).map(lambda n: f".{n}"),
)
NAMES = st.builds(
    lambda root, steps: root + "".join(steps), st.sampled_from(["x", "params"]), st.lists(STEPS, max_size=4)
)


@given(NAMES)
def test_key_paths_are_split_between_their_steps(name: str) -> None:
    assert "".join(keys(name)) == name and re.fullmatch(r"\w+", keys(name)[0])
    assert all(step[0] in "[." for step in keys(name)[1:])
    assert keys("params['it]s'][0].mu") == ["params", "['it]s']", "[0]", ".mu"]


@given(st.lists(NAMES, unique=True, max_size=40), st.integers(1, 12))
def test_every_array_is_in_one_group_or_left_out(names: list[str], rows: int) -> None:
    ports = [port(n) for n in sorted(names)]
    groups, left = grouped(ports, rows)
    assert len(groups) <= rows
    assert sorted(p.name for p in [*(p for g in groups for p in g.ports), *left]) == sorted(names)
    for group in groups:
        assert [ports[i] for i in group.members] == list(group.ports)
        assert all(p.name.startswith(group.name) for p in group.ports)
        assert group.single is None or group.name == group.single.name
    if len(ports) <= rows:
        assert not left


def test_groups_report_counts_bytes_islands_and_donation() -> None:
    layers = [port(f"params[0]['layers'][{i}]", donated=i < 26, island=f"island{i % 2}") for i in range(26)]
    (params, tokens), left = grouped([*layers, port("tokens")])
    assert params.name == "params[0]['layers']" or params.name.startswith("params")
    assert counted(params.ports) == "26 arrays, 832 B" and params.donated == "donated"
    assert params.islands == "island0, island1" and tokens.single is not None and not left
    mixed, _ = grouped([port(f"x[{i}]", donated=i == 0) for i in range(20)], 1)
    assert mixed[0].donated in ("1 of them donated", "donated")
    flat, left = grouped([port(f"out[{i}]") for i in range(20)])
    assert [g.name for g in flat] == [f"out[{i}]" for i in range(ROWS)] and len(left) == 20 - ROWS
    many, left = grouped([port(f"argument{i}") for i in range(83)])
    assert len(many) == ROWS and len(left) == 83 - ROWS
    assert grouped([]) == ([], [])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled plan of the training sample."""
    path = tmp_path_factory.mktemp("plans") / "train.bin"
    assert pwc_here("compile", str(ROOT / "samples" / "train_lm.py"), "-o", str(path))[0] == 0
    return path


def test_inspect_fits_one_screen(trained: Path) -> None:
    exit_code, brief, _ = pwc_here("inspect", str(trained))
    lines = brief.splitlines()
    assert exit_code == 0 and len(lines) <= SCREEN_LINES
    (params,) = [line.split() for line in lines if line.startswith("  params[0]")]
    assert params == ["params[0]", "14", "arrays,", "456.0", "KiB", "island0", "donated"]
    assert "inputs   83 arrays, 2.7 MiB" in lines and "tokens" in brief and "out[2]" in brief
    assert "transfers between islands: " in brief and "peak " in brief and "--all" in brief
    _, everything, _ = pwc_here("inspect", str(trained), "--all")
    plan = load_plan(trained)
    for p in (*plan.inputs, *plan.results):
        assert f"  {p.name} " in everything
    assert len(everything.splitlines()) > sum(len(s.buffers) + len(s.instructions) for s in plan.streams)


def test_a_plan_of_many_islands_and_bodies_fits_one_screen(tmp_path: Path) -> None:
    path, plan = tmp_path / "model.py", tmp_path / "plan.bin"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax import lax\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "import pathways as pw\n"
        "made = pw.make_virtual_device_set()\n"
        "on = [NamedSharding(made.add_slice(devices=1).mesh('x'), P()) for _ in range(12)]\n"
        "calls = [jax.jit(lambda x, i=i: jnp.sin(x) + i, in_shardings=s) for i, s in enumerate(on)]\n"
        "@pw.program(example_args=([jnp.ones(3)] * 12, jnp.int32(0)))\n"
        "def step(xs, n):\n"
        "    xs = [f(x) for f, x in zip(calls, xs)]\n"
        "    for i in range(0, 12, 2):\n"
        "        xs[i] = lax.cond(n > i, lambda v, i=i: calls[i](calls[i + 1](v)), lambda v: v, xs[i])\n"
        "    return xs\n"
    )
    exit_code, _, stderr = pwc_here("compile", str(path), "-o", str(plan))
    assert exit_code == 0, stderr
    exit_code, brief, _ = pwc_here("inspect", str(plan))
    assert exit_code == 0 and len(brief.splitlines()) <= SCREEN_LINES and "... and " in brief and "body " in brief
    assert max(map(len, brief.splitlines())) < 250


def test_run_prints_one_screen_or_everything_with_all(trained: Path, moe_plan: Path) -> None:
    exit_code, brief, _ = pwc_here("run", str(trained))
    assert exit_code == 0 and "out[0][0]: 14 arrays, 456.0 KiB" in brief and "out[2]: float32[] " in brief
    assert len(brief.splitlines()) == 5
    exit_code, everything, _ = pwc_here("run", str(trained), "--all")
    assert exit_code == 0
    for p in load_plan(trained).results:
        assert f"{p.name}: {p.dtype}{list(p.type.shape)} " in everything
    _, few, _ = pwc_here("run", str(moe_plan))
    assert few.count("out[") == 6 and "out[0]['router']: float32[16, 4] [" in few


def test_the_overview_counts_the_inputs_of_a_plan(moe_plan: Path) -> None:
    plan = load_plan(moe_plan)
    assert "inputs   7 arrays" in overview(plan, lambda _, p: [p.name, "", "", ""])
