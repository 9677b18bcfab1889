"""The rules of the house, checked by script: nothing sleeps, nothing spins, and every error is met by a test."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathways.dialect.diagnostics import Diagnostic

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
FILES = [p for p in sorted(TESTS.rglob("*.py")) if p != Path(__file__)]
ERRORS = ("dialect", "compiler", "runtime", "api", "cli")
"""The layers, each with its errors in `errors.py`."""
_SLEEPS = re.compile(r"\btime\.sleep\b|\bfrom time import\b.*\bsleep\b|(?<![.\w])sleep\(")
_SPINS = re.compile(r"^\s*while .*:\s*(pass|continue)?\s*(#.*)?\n\s*(pass|continue)\s*$", re.M)


def sleeps(source: str) -> Iterator[int]:
    """The lines on which code sleeps, or a string of code does that a test runs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) in ("time", "asyncio"):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time" and any(n.name == "sleep" for n in node.names):
            yield node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SLEEPS.search(node.value):
            yield node.lineno


def spins(source: str) -> Iterator[int]:
    """The lines of loops that only wait for their condition."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While) and all(isinstance(n, ast.Pass | ast.Continue) for n in node.body):
            yield node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SPINS.search(node.value):
            yield node.lineno


def test_nothing_sleeps_and_nothing_spins() -> None:
    """Tests wait for events, threads and processes, or move a clock of their own."""
    found = [
        f"{path.relative_to(TESTS)}:{line}: {what.__name__}"
        for path in FILES
        for what in (sleeps, spins)
        for line in what(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.sleep(1)", 1),
        ("from time import monotonic, sleep", 1),
        ("import asyncio\nasync def f(): await asyncio.sleep(1)", 1),
        ('CODE = """\nimport time\ntime.sleep(3)\n"""', 1),
        ('CODE = "from time import sleep; sleep(3)"', 1),
        ("while not done:\n    pass", 1),
        ("while True:\n    continue", 1),
        ('CODE = """\nwhile not ready():\n    pass\n"""', 1),
        ("clock.sleep(1)\nwhile queue:\n    queue.pop()", 0),
    ],
)
def test_what_sleeps_or_spins_is_seen(source: str, found: int) -> None:
    assert len([*sleeps(source), *spins(source)]) == found


def codes() -> dict[str, str]:
    """Every error code, and the class that has it."""
    found: dict[str, str] = {}
    for layer in ERRORS:
        module = importlib.import_module(f"pathways.{layer}.errors")
        for name, class_ in inspect.getmembers(module, inspect.isclass):
            if issubclass(class_, Diagnostic) and class_.__module__ == module.__name__ and "code" in vars(class_):
                assert class_.code not in found, f"{name} and {found[class_.code]} are both {class_.code}"
                found[class_.code] = name
    return found


def test_every_error_is_met_by_a_test() -> None:
    golden = [p for p in GOLDEN.rglob("*") if p.is_file()]
    met = set(re.findall(r"PWC\d{4}", "".join(p.read_text() for p in (*FILES, *golden))))
    missing = {code: name for code, name in codes().items() if code not in met}
    assert len(codes()) > 60 and not missing


def test_no_test_expects_an_error_that_there_is_not() -> None:
    known = {*codes(), Diagnostic.code, "PWC9999"}
    for path in FILES:
        assert set(re.findall(r"PWC\d{4}\b", path.read_text())) <= known, path
