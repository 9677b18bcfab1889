"""Documents name the files that there are, and the folders' own READMEs name all of theirs."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ("bench", "cli", "compiler", "dialect", "docs", "pathways", "runtime", "samples", "tests", "viz")
"""Links below `pathways` are not followed: every file has one name."""
PATH = re.compile(r"(?<![\w`])`(?:python )?((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|proto|binpb|mlir|toml)|/))`")
"""A file or a folder, alone between backticks; `mine.py:MyOrder` is a user's."""
USERS = {"model.py", "my_place.py", "my_order.py"}
"""Files that a reader is to write."""


@cache
def tree() -> frozenset[str]:
    """Every file and folder, from the root on; folders end with a slash."""
    found = {p.name for p in ROOT.iterdir() if p.is_file()}
    for folder in SOURCE:
        for path in ((ROOT / folder), *(ROOT / folder).rglob("*")):
            if "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else ""))
    return frozenset(found)


def documents() -> list[str]:
    return sorted(name for name in tree() if name.endswith(".md"))


def named_in(document: str) -> list[str]:
    return PATH.findall((ROOT / document).read_text())


def is_there(name: str, folder: str) -> bool:
    """A path counts from the root or from the document's folder; a name alone from anywhere below that."""
    if name in tree() or f"{folder}{name}" in tree():
        return True
    below = folder if (ROOT / folder / "__init__.py").exists() else ""
    return "/" not in name.rstrip("/") and any(k.startswith(below) and k.endswith(f"/{name}") for k in tree())


def rooms(folder: str) -> dict[str, set[str]]:
    """What the README of a folder names under the heading of each room, as tables do: at the start of a row."""
    found: dict[str, set[str]] = {}
    for section in (ROOT / folder / "README.md").read_text().split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for room in re.findall(r"`([\w/]+/)`", heading):
            firsts = re.findall(r"^\| (`[^|]*`) \|", body, re.M)
            found[room if room in tree() else f"{folder}/{room}"] = {
                name for first in firsts for name in PATH.findall(first)
            }
    return found


def test_names_are_found_where_they_are_written() -> None:
    text = "`runtime/errors.py`, `control/`, `python bench/chain.py`; not `mine.py:MyOrder`, `plan.bin`, `pwc run a.py`"
    assert PATH.findall(text) == ["runtime/errors.py", "control/", "bench/chain.py"]
    assert is_there("control/", "runtime/") and is_there("pjrt.py", "runtime/") and is_there("pjrt.py", "docs/")
    assert not is_there("pjrt.py", "compiler/") and not is_there("runtime/pjrt.py", "")
    assert not is_there("devices/pjrt.py", "runtime/")


@pytest.mark.parametrize("document", documents())
def test_what_a_document_names_is_there(document: str) -> None:
    folder = document.rpartition("/")[0]
    names = set(named_in(document)) - USERS
    assert not [name for name in sorted(names) if not is_there(name, f"{folder}/" if folder else "")]


@pytest.mark.parametrize("folder", ["compiler", "dialect", "runtime"])
def test_a_folder_says_what_each_of_its_files_is_for(folder: str) -> None:
    files = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py"}
    said = {Path(room) / name for room, names in rooms(folder).items() for name in names}
    assert {p.as_posix() for p in files} == {p.as_posix() for p in said}


def test_the_runtime_says_of_every_lock_what_it_guards() -> None:
    text = (ROOT / "runtime" / "README.md").read_text()
    said = set(PATH.findall(text[text.index("## Locks") : text.index("## Hangs")]))
    made = re.compile(r"threading\.(?:R?Lock|Event|Condition|\w*Semaphore|Barrier)\b|\bGate\(\)|ThreadPool|Queue\(\)")
    files = {p.name for p in (ROOT / "runtime").rglob("*.py") if made.search(p.read_text())}
    assert files and not files - said
