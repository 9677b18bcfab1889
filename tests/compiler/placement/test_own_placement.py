"""Tests placement policies of users: the tutorial's policy, invalid ones, entry points and functions."""

import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import pwc_here

import pathways as pw
from pathways.cli.explain import catalogs
from pathways.compiler.placement import Placement
from pathways.dialect.plan.plan_file import load_plan


@pytest.fixture
def tutorial(root: Path, tmp_path: Path) -> Path:
    code = re.findall(
        r"```python title=\"my_place.py\"\n(.*?)```", (root / "docs" / "writing-a-placement-pass.md").read_text(), re.S
    )
    path = tmp_path / "my_place.py"
    path.write_text("\n".join(code))
    return path


def test_the_tutorials_policy_places_slices_and_explains_itself(root: Path, tutorial: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    sample = str(root / "samples" / "mixture_of_experts.py")
    arguments = ("compile", sample, "--topology", "islands=2,devices=4", "-o", str(plan))
    assert pwc_here(*arguments)[0] == 0
    spread = [s.island for s in load_plan(plan).slices]
    exit_code, stdout, stderr = pwc_here(*arguments, "--placement", f"{tutorial}:pack")
    assert exit_code == 0, stderr
    packed = [s.island for s in load_plan(plan).slices]
    assert "packed: " in stdout and packed != spread and sorted(packed) == ["island0", "island0", "island1"]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("return Placement({}, {})", "PWC0305", "a binding for every slice"),
        ("return None", "PWC0305", "a Placement"),
        ("return 1 / 0", "PWC0305", "ZeroDivisionError"),
        (
            "return Placement({r.symbol: Binding('island0', (0, 1)) for r in graph.graph['slices']}, {})",
            "PWC0305",
            "disjoint devices",
        ),
    ],
)
def test_invalid_results_of_policies_are_refused(
    body: str, code: str, message: str, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        f"from pathways.compiler.placement import Binding, Placement\n\n\ndef place(graph, topology):\n    {body}\n"
    )
    sample = str(root / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", sample, "--placement", f"{path}:place")
    assert exit_code == 3 and f"error[{code}]" in stderr and message in stderr and "bad.py:place" in stderr
    if "1 / 0" in body:
        assert f"{path}:5" in stderr


@pytest.mark.parametrize("name", ["nothing", "nothing.py:place", "{root}/samples/figure2.py:nothing"])
def test_policies_that_cannot_be_found_are_refused(name: str, root: Path) -> None:
    sample = str(root / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", sample, "--placement", name.format(root=root))
    assert exit_code == 2 and "error[PWC0307]" in stderr and "pinned, spread" in stderr


def test_a_policy_class_that_cannot_be_constructed_is_refused(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    def __init__(self):\n        raise KeyError('no')\n")
    sample = str(root / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", sample, "--placement", f"{path}:Mine")
    assert exit_code == 2 and "error[PWC0307]" in stderr and f"{path}:3" in stderr


def test_entry_points_are_found_and_failing_ones_are_refused(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    from importlib import metadata

    def entry_points(group: str) -> list[metadata.EntryPoint]:
        here = "pathways.compiler.placement.spread:spread"
        values = {"theirs": here, "gone": "no_such_module:place"}
        return [metadata.EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    sample = str(root / "samples" / "mixture_of_experts.py")
    exit_code, stdout, _ = pwc_here("compile", sample, "--placement", "theirs")
    assert exit_code == 0 and "theirs: about" in stdout
    exit_code, _, stderr = pwc_here("compile", sample, "--placement", "gone")
    assert exit_code == 2 and "error[PWC0307]" in stderr and "ModuleNotFoundError" in stderr
    exit_code, _, stderr = pwc_here("compile", sample, "--placement", "neither")
    assert exit_code == 2 and "theirs" in stderr and "gone" in stderr


def test_a_python_function_can_be_a_policy() -> None:
    asked: list[Any] = []

    def first(graph: Any, topology: Any) -> Placement:
        from pathways.compiler.placement import POLICIES

        asked.append(graph.graph["slices"])
        return POLICIES["spread"](graph, topology)

    compiled = pw.program(lambda x: x + 1).lower(jnp.ones(3)).compile("devices=2", placement=first)
    assert len(asked) == 1
    np.testing.assert_array_equal(np.asarray(compiled(np.ones(3, np.float32))), 2 * np.ones(3))


def test_pwc_lists_passes_and_explains_error_codes() -> None:
    exit_code, stdout, _ = pwc_here("passes")
    assert exit_code == 0 and "insert-transfers" in stdout and "policy=spread" in stdout and "pinned" in stdout
    codes = [cls.code for cls in catalogs()]
    assert len(set(codes)) == len(codes) > 25
    for code in codes:
        exit_code, stdout, _ = pwc_here("explain", code)
        assert exit_code == 0 and stdout.startswith(code) and "need:" in stdout
    assert len(pwc_here("explain")[1].splitlines()) == len(codes)
    exit_code, _, stderr = pwc_here("explain", "PWC9999")
    assert exit_code == 2 and "PWC0806" in stderr
