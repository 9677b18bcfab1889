"""A script checks style rules: tests do not sleep or spin, every error code has a test, and comments are plain."""

import ast
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathways.dialect.diagnostics import Diagnostic

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
FILES = [p for p in sorted(TESTS.rglob("*.py")) if p != Path(__file__)]
ERRORS = (
    "dialect",
    "compiler",
    "compiler.emit",
    "compiler.frontends.jax.pipeline",
    "compiler.frontends.mpmd",
    "compiler.frontends.stablehlo",
    "runtime",
    "runtime.wire",
    "viz",
    "api",
    "ifrt_proxy",
    "cli",
)
"""Layers that define their errors in `errors.py`."""
PRODUCT = ("dialect", "compiler", "runtime", "viz", "cli", "pathways/api", "pathways/ifrt_proxy")
_PERSONS = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody)\b", re.I)
_SLEEPS = re.compile(r"\btime\.sleep\b|\bfrom time import\b.*\bsleep\b|(?<![.\w])sleep\(")
_SPINS = re.compile(r"^\s*while .*:\s*(pass|continue)?\s*(#.*)?\n\s*(pass|continue)\s*$", re.M)


def sleeps(source: str) -> Iterator[int]:
    """Yields the lines on which code sleeps, also code in strings that a test runs."""
    for node in ast.walk(ast.parse(source)) if "sleep" in source else ():
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) in ("time", "asyncio"):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time" and any(n.name == "sleep" for n in node.names):
            yield node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SLEEPS.search(node.value):
            yield node.lineno


def spins(source: str) -> Iterator[int]:
    """Yields the lines of loops that only wait for their condition."""
    for node in ast.walk(ast.parse(source)) if "while" in source else ():
        if isinstance(node, ast.While) and all(isinstance(n, ast.Pass | ast.Continue) for n in node.body):
            yield node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SPINS.search(node.value):
            yield node.lineno


def test_no_test_sleeps_or_spins() -> None:
    """Tests wait for events, threads and processes, or advance a simulated clock."""
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
def test_code_that_sleeps_or_spins_is_detected(source: str, found: int) -> None:
    assert len([*sleeps(source), *spins(source)]) == found


def codes() -> dict[str, str]:
    """Maps every error code to the name of its class."""
    found: dict[str, str] = {}
    for layer in ERRORS:
        module = importlib.import_module(f"pathways.{layer}.errors")
        for name, class_ in inspect.getmembers(module, inspect.isclass):
            if issubclass(class_, Diagnostic) and class_.__module__ == module.__name__ and "code" in vars(class_):
                assert class_.code not in found, f"{name} and {found[class_.code]} are both {class_.code}"
                found[class_.code] = name
    return found


def test_every_error_code_occurs_in_a_test() -> None:
    golden = [p for p in GOLDEN.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    met = set(re.findall(r"PWC\d{4}", "".join(p.read_text() for p in (*FILES, *golden))))
    missing = {code: name for code, name in codes().items() if code not in met}
    assert len(codes()) > 60 and not missing


def test_tests_name_only_existing_error_codes() -> None:
    known = {*codes(), Diagnostic.code, "PWC9999"}
    for path in FILES:
        assert set(re.findall(r"PWC\d{4}\b", path.read_text())) <= known, path


def explanations(source: str) -> Iterator[tuple[int, str]]:
    """Yields comments and docstrings of a file with their first lines, but no messages for users."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def lines_with_persons(source: str) -> list[int]:
    """Returns the lines of comments and docstrings that call code, threads or runs persons."""
    if not _PERSONS.search(source):  # most files: reading their tokens takes long
        return []
    return [line for line, text in explanations(source) if _PERSONS.search(text)]


def test_comments_and_docstrings_name_no_persons() -> None:
    files = [p for folder in PRODUCT for p in sorted((TESTS.parent / folder).rglob("*.py"))]
    found = [f"{p.relative_to(TESTS.parent)}:{line}" for p in files for line in lines_with_persons(p.read_text())]
    assert len(files) > 200 and not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Wakes whoever waits."""', [1]),
        ("wake()  # nobody waits", [1]),
        ('class Line:\n    most: int\n    """So many;\n    Somebody else has more."""', [3]),
        ('need = "an array that nobody overwrites"', []),
        ("# anybodies\nnobody = 1", []),
    ],
)
def test_persons_are_detected_only_in_comments_and_docstrings(source: str, found: list[int]) -> None:
    assert lines_with_persons(source) == found
