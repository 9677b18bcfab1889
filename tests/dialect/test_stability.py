"""The table of stability has a row for each public name, command, environment variable, and for no other."""

import re
from pathlib import Path

import click
import pytest

import pathways as pw
from pathways.cli.main import COMMANDS as PWC_COMMANDS
from pathways.cli.main import main
from pathways.dialect.stability import COMMANDS, FORMATS, NAMES, OPTIONS, PROMISES, VARIABLES, stability_of

FOLDERS = ("cli", "compiler", "dialect", "runtime", "viz", "pathways/api")


def test_the_table_has_each_public_name_and_each_command() -> None:
    public = {name for name in (*dir(pw), *pw.__all__) if not name.startswith("_")} & set(vars(pw)["_WHERE"])
    assert set(NAMES) == public
    assert set(COMMANDS) == set(PWC_COMMANDS)


def test_the_table_has_each_environment_variable_of_the_code(root: Path) -> None:
    sources = [p for folder in FOLDERS for p in (root / folder).rglob("*.py") if p.name != "stability.py"]
    used = {name for source in sources for name in re.findall(r'"(PATHWAYS_[A-Z_]*[A-Z])"', source.read_text())}
    assert used == set(VARIABLES)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_the_table_is_one_of_its_command(name: str) -> None:
    *words, option = name.split()
    command: click.Command = main
    with click.Context(main) as context:
        for word in words:
            assert isinstance(command, click.Group)
            below = command.get_command(context, word)
            assert below is not None
            command = below
        assert option in {spelled for parameter in command.params for spelled in parameter.opts}


@pytest.mark.parametrize("asked", ["pw.cluster", "cluster", "pathways.cluster"])
def test_a_name_of_python_is_found_by_each_spelling(asked: str) -> None:
    assert stability_of(asked) == ("pw.cluster", ("beta", "name of Python"))


def test_a_command_is_found_by_its_full_name_and_what_is_not_public_is_not_found() -> None:
    assert stability_of("pwc cluster") == ("pwc cluster", ("beta", "command"))
    assert stability_of("pwc compile --emit") == ("pwc compile --emit", ("experimental", "option"))
    assert stability_of("pwc cluster start") == ("pwc cluster start", ("beta", "command"))
    assert stability_of("pw.compile") is None and stability_of("pathways.check") is None
    assert stability_of("pwc nothing") is None and stability_of("PATHWAYS_NOTHING") is None
    assert stability_of("plan.bin") == ("plan.bin", ("beta", "format"))
    assert stability_of("pw.Scheduler") is None
    for marks in (NAMES, COMMANDS, OPTIONS, VARIABLES, FORMATS):
        assert set(marks.values()) <= set(PROMISES)
