"""Tests that plans kept in the cache folder replace lowering and compilation, and only for equal programs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.xla_metadata import set_xla_metadata

import pathways as pw
from pathways.api.process import process
from pathways.api.stages import Lowered
from pathways.compiler.placement import POLICIES

X = np.arange(8, dtype=np.float32)
SLICES = pw.make_virtual_device_set()
A, B = SLICES.add_slice(devices=2), SLICES.add_slice(devices=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "keys" / "key"))
    monkeypatch.setattr(process().controller.executables, "folder", tmp_path)
    yield tmp_path / "plans"


def two_stages(by: float = 2.0) -> Callable[..., Any]:
    """Returns a new function of two stages. All have the same source lines."""
    first = jax.jit(lambda x: x * by, out_shardings=jax.NamedSharding(A.mesh("x"), jax.P("x")))
    second = jax.jit(lambda x: x + 1, out_shardings=jax.NamedSharding(B.mesh("x"), jax.P()))

    def f(x: Any) -> Any:
        return second(first(x))

    return f


def lowered(function: Callable[..., Any], *arguments: Any, **options: Any) -> Lowered:
    return pw.program(function, **options).lower(*(arguments or (X,)))


def is_known(found: Lowered) -> bool:
    """Whether the program has not been lowered."""
    return "jax lower" not in found.timing


def test_an_equal_program_takes_its_plan_from_the_cache(cache: Path) -> None:
    first = lowered(two_stages())
    made = first.compile()
    assert not is_known(first) and len(list(cache.glob("*/*"))) == 2
    again = lowered(two_stages())
    kept = again.compile()
    assert is_known(again) and kept.plan == made.plan and list(again.slices) == list(first.slices)
    np.testing.assert_array_equal(kept(X), X * 2 + 1)
    assert [r.where.here for r in kept.plan.runs() if r.where] == [r.where.here for r in made.plan.runs() if r.where]
    assert is_known(again) and again.as_text() == first.as_text() and not is_known(again)
    assert not again.constants and kept.as_text() == made.as_text()


def test_options_and_topologies_have_plans_of_their_own(cache: Path) -> None:
    lowered(two_stages()).compile()
    again = lowered(two_stages())
    merged, apart = again.compile(), again.compile(merge=False)
    assert len(list(merged.plan.runs())) <= len(list(apart.plan.runs()))
    there = again.compile("islands=1,devices=4")
    assert [s.island for s in there.plan.slices] != [s.island for s in merged.plan.slices]
    assert len(list(cache.glob("*/*"))) == 4
    kept = lowered(two_stages()).compile("islands=1,devices=4")
    assert kept.plan == there.plan


def test_changed_ir_is_compiled_and_not_kept(cache: Path) -> None:
    lowered(two_stages()).compile()
    known = sorted(cache.glob("*/*"))
    changed = lowered(two_stages())
    assert changed.module.operation.verify()
    np.testing.assert_array_equal(changed.compile(merge=False)(X), X * 2 + 1)
    assert not is_known(changed) and sorted(cache.glob("*/*")) == known


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "of another program"])
@pytest.mark.parametrize("which", ["slices", "plan"])
def test_damaged_files_are_replaced(cache: Path, which: str, damage: str) -> None:
    lowered(two_stages()).compile()
    (path,) = (p for p in cache.glob("*/*") if (p.name == "slices") == (which == "slices"))
    raw = path.read_bytes()
    if damage == "of another program":
        lowered(two_stages(3.0)).compile()
        (other,) = (p for p in cache.glob(f"*/{path.name}") if p != path)
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes({"cut": raw[:-9], "changed": raw[:-9] + bytes(9), "empty": b""}[damage])
    damaged = path.read_bytes()
    assert damaged != raw
    np.testing.assert_array_equal(lowered(two_stages()).compile()(X), X * 2 + 1)
    assert path.read_bytes() not in (damaged, b"")
    again = lowered(two_stages())
    np.testing.assert_array_equal(again.compile()(X), X * 2 + 1)
    assert is_known(again)


def test_a_program_that_cannot_be_kept_is_compiled_each_time(cache: Path) -> None:
    def calls_back(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for _ in range(2):
        found = lowered(calls_back)
        np.testing.assert_array_equal(found.compile()(X), X * 2)
        assert not is_known(found)
    assert not list(cache.glob("*"))
    lowered(two_stages()).compile(placement=lambda graph, topology: POLICIES["spread"](graph, topology))
    assert not list(cache.glob("*"))


def test_code_that_cannot_be_placed_is_refused_at_each_lowering(cache: Path) -> None:
    def f(x: Any) -> Any:
        mesh = jax.sharding.Mesh(np.array([*A.devices, *B.devices], dtype=object), ("x",))
        return jax.jit(lambda v: v, out_shardings=jax.NamedSharding(mesh, jax.P()))(x)

    for _ in range(2):
        with pytest.raises(pw.PathwaysError, match="PWC0204"):
            lowered(f)


def test_a_kept_program_is_lowered_under_the_settings_of_its_trace(cache: Path) -> None:
    def f(x: Any) -> Any:
        return jnp.arange(8) * x

    wide = X.astype(np.float64)
    texts: list[str] = []
    for _ in range(2):
        with jax.enable_x64(True):
            found = lowered(f, wide)
            found.compile()
        with jax.set_mesh(A.mesh("x")):
            texts.append(found.as_text())
    assert texts[0] == texts[1] and "f64" in texts[0]


SCRIPT = """
import sys, numpy as np, jax, pathways as pw
slices = [pw.make_virtual_device_set().add_slice(devices=1) for _ in range(int(sys.argv[1]))][-2:]
on = [jax.NamedSharding(s.mesh("x"), jax.P()) for s in slices]
@pw.program
def f(x):
    y = jax.jit(lambda v: v * 2, out_shardings=on[0])(x)
    return jax.jit(lambda v: v.sum() + 1, out_shardings=on[1])(y)
x = np.arange(8, dtype=np.float32)
lowered = f.lower(x)
print("jax lower" in lowered.timing, float(lowered.compile()(x)), float(f(x)))
"""


def test_a_later_process_finds_the_plans_of_an_earlier_one(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "PATHWAYS_CACHE"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"), "PATHWAYS_KEY": str(tmp_path / "keys" / "key")}
    command = [sys.executable, str(script)]
    made, again = (
        subprocess.run([*command, n], env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
        for n in ("2", "5")  # the slices of the second process have other numbers
    )
    assert made.split() == ["True", "57.0", "57.0"] and again.split() == ["False", "57.0", "57.0"]


@pytest.mark.parametrize("change", ["written", "deleted"])
def test_closed_over_arrays_are_those_of_the_trace(cache: Path, change: str) -> None:
    def adding(values: Any) -> Callable[[Any], Any]:
        return lambda x: x + values

    lowered(adding(np.ones(8, np.float32))).compile()
    mine: Any = np.ones(8, np.float32) if change == "written" else jnp.ones(8)
    again = lowered(adding(mine))
    if change == "written":
        mine[:] = 5
    else:
        mine.delete()
    for merge in (True, False):
        np.testing.assert_array_equal(again.compile(merge=merge)(X), X + 1)
    np.testing.assert_array_equal(lowered(adding(np.ones(8, np.float32))).compile(merge=False)(X), X + 1)


def test_a_plan_that_is_compiled_under_other_settings_is_not_kept(cache: Path) -> None:
    lowered(two_stages()).compile()
    known = sorted(cache.glob("*/*"))
    again = lowered(two_stages())
    with set_xla_metadata(color="red"):
        again.compile(merge=False)
    assert sorted(cache.glob("*/*")) == known
    assert "color" not in lowered(two_stages()).compile(merge=False).as_text()
    assert len(list(cache.glob("*/*"))) == len(known) + 1


def test_a_known_program_is_lowered_while_jax_traces(cache: Path) -> None:
    lowered(two_stages()).compile()
    again, texts = lowered(two_stages()), list[str]()

    def f(x: Any) -> Any:
        texts.append(again.as_text())
        return x

    jax.jit(f)(X)
    assert texts == [lowered(two_stages()).as_text()]
