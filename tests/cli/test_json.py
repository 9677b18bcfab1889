"""`--json` of each command prints one object with the version of its schema."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from support.processes import pwc_here

from pathways.cli import doctor
from pathways.cli.json_output import JSON_VERSION
from pathways.cli.main import COMMANDS, main
from pathways.compiler.pass_manager import PASSES


def printed(*arguments: str, code: int = 0) -> dict[str, Any]:
    found, stdout, stderr = pwc_here(*arguments)
    assert found == code, stderr
    row = json.loads(stdout)
    assert row.pop("version") == JSON_VERSION
    return row


@pytest.mark.parametrize("name", ["status", "top", "inspect", "why", "diff", "doctor", "passes", "explain", "run"])
def test_each_command_that_prints_figures_has_the_option(name: str) -> None:
    with click.Context(main) as context:
        command = main.get_command(context, name)
    assert name in COMMANDS and command is not None
    assert any("--json" in parameter.opts for parameter in command.params)


def test_passes_lists_each_pass_with_its_phases() -> None:
    row = printed("passes", "--json")
    assert [each["name"] for each in row["passes"]] == list(PASSES)
    assert "spread" in {each["name"] for each in row["placements"]}
    assert all({"requires", "ensures", "options", "text"} <= set(each) for each in row["passes"])


def test_explain_prints_one_code_all_codes_and_stability() -> None:
    one = printed("explain", "PWC0301", "--json")
    assert one["code"] == "PWC0301" and one["exit"] == 5 and one["need"] == "<needs>"
    assert one in printed("explain", "--json")["codes"]
    assert printed("explain", "pw.program", "--json") == {
        "name": "pw.program", "kind": "name of Python", "stability": "stable"
    }  # fmt: skip


def test_diff_tells_whether_two_plans_are_the_same(moe_plan: Path, tmp_path: Path) -> None:
    same = printed("diff", str(moe_plan), str(moe_plan), "--json")
    assert same == {"same": True, "summary": [], "lines": [], "unseen": []}
    other, source = tmp_path / "other.bin", tmp_path / "model.py"
    source.write_text(
        "import numpy as np, pathways as pw\nstep = pw.program(lambda x: x + 1, example_args=(np.ones(2),))\n"
    )
    assert pwc_here("compile", str(source), "-o", str(other))[0] == 0
    row = printed("diff", str(moe_plan), str(other), "--json", code=1)
    assert not row["same"] and row["summary"] and row["lines"]
    assert printed("diff", str(moe_plan), str(other), "--json", "--summary", code=1)["lines"] == []


def test_doctor_prints_all_checks_and_fails_if_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    well, ill = doctor.Check("python", lambda: ("3.11", "")), doctor.Check("devices", lambda: ("none", "a driver"))
    monkeypatch.setattr(doctor, "CHECKS", (well,))
    monkeypatch.setattr(doctor, "SELF_TESTS", (ill,))
    assert printed("doctor", "--json") == {"checks": [{"name": "python", "state": "ok", "found": "3.11", "try": ""}]}
    row = printed("doctor", "--self-test", "--json", code=3)
    assert row["checks"][1] == {"name": "devices", "state": "bad", "found": "none", "try": "a driver"}


@pytest.mark.long("three processes run a plan, a pipeline and a cluster: 4 s")
def test_the_self_test_passes_here() -> None:
    for check in doctor.SELF_TESTS:
        assert check.ask()[1] == "", check.ask()
