"""Docstrings and documents keep the rules of plain English that a program can check."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plain_english import (
    HOME_MADE,
    INTERROGATIVES,
    Text,
    constants_without_unit,
    docstrings,
    long_sentences,
    prose,
)

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "compiler", "dialect", "runtime", "viz", "pathways/api", "bench", "docs", "samples")


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (p for p in sorted((ROOT / folder).rglob("*.py")) if not p.name.endswith("_pb2.py"))


def documents() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / folder / "README.md" for folder in ("compiler", "dialect", "runtime", "samples", "tests"))


def faults(text: Text) -> Iterator[str]:
    """Yields what is wrong with a docstring."""
    if INTERROGATIVES.match(text.text):
        yield "it begins with an interrogative; begin with a verb"
    if text.text.startswith("Whether ") and not text.is_boolean:
        yield "it begins with `Whether`, but describes no truth value"
    yield from (f"a sentence of over 30 words: {sentence[:80]}" for sentence in long_sentences(text.text))
    yield from (f"a home-made term: {found[0]}" for found in HOME_MADE.finditer(text.text))


def test_docstrings_are_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{text.line}: {fault}"
        for path in sources()
        for text in docstrings(path.read_text())
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


def test_numbers_of_seconds_and_bytes_have_their_unit_in_the_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources()
        for line, name in constants_without_unit(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_documents_are_plain_english() -> None:
    found: list[str] = []
    for path in documents():
        text = prose(path.read_text())
        found += [f"{path.relative_to(ROOT)}: over 30 words: {sentence[:100]}" for sentence in long_sentences(text)]
        found += [f"{path.relative_to(ROOT)}: a home-made term: {term[0]}" for term in HOME_MADE.finditer(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_a_page_has_at_most_1500_words(page: Path) -> None:
    if page.name in ("dialect.md", "evaluation.md"):
        pytest.skip("made from the code, or from results")
    assert len(re.sub(r"<!-- made:.*?<!-- end -->", "", page.read_text(), flags=re.S).split()) <= 1500


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('def f() -> int:\n    """What it is."""', 1),
        ('def f() -> int:\n    """Whether it is."""', 1),
        ('def f() -> bool:\n    """Whether it is."""', 0),
        ('X: bool = True\n"""Whether it is."""', 0),
        ('def f() -> int:\n    """Returns a roll call."""', 1),
        (f'"""Returns {"very " * 30}much."""', 1),
        (f'"""Returns this. It is {"very " * 20}much."""', 0),
        ('def f() -> int:\n    """Returns whose turn it is, unasked."""', 2),
    ],
)
def test_faults_of_docstrings_are_found(source: str, count: int) -> None:
    ast.parse(source)
    assert sum(1 for text in docstrings(source) for _ in faults(text)) == count


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('LOOK = 0.5\n"""Seconds between two polls."""', ["LOOK"]),
        ('POLL_INTERVAL_S = 0.5\n"""Seconds between two polls."""', []),
        ('LARGE = 1 << 20\n"""Bytes of a large argument."""', ["LARGE"]),
        ('LARGE_BYTES = 1 << 20\n"""Bytes of a large argument."""', []),
        ('COUNT = 4\n"""The number of retries."""', []),
        ('NAMES = ("a",)\n"""Names of bytes."""', []),
    ],
)
def test_constants_without_unit_are_found(source: str, names: list[str]) -> None:
    assert [name for _, name in constants_without_unit(source)] == names
