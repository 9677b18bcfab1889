"""Documents name only existing files, and READMEs of folders list every file of their folder."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ("bench", "cli", "compiler", "dialect", "docs", "pathways", "runtime", "samples", "tests", "viz")
"""Folders of the repository. Links below `pathways` are not followed, so every file has one name."""
PATH = re.compile(r"(?<![\w`])`(?:python )?((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|proto|binpb|mlir|toml)|/))`")
"""Matches a file or a folder alone between backticks. `mine.py:MyOrder` belongs to a user."""
USER_FILES = {"model.py", "my_place.py", "my_order.py"}
"""Files that the reader writes."""


@cache
def tree() -> frozenset[str]:
    """Returns every file and folder, relative to the root. Folders end with a slash."""
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


def exists(name: str, folder: str) -> bool:
    """Tells whether a path exists, from the root or `folder`. A bare name may lie anywhere below `folder`."""
    if name in tree() or f"{folder}{name}" in tree():
        return True
    below = folder if (ROOT / folder / "__init__.py").exists() else ""
    return "/" not in name.rstrip("/") and any(k.startswith(below) and k.endswith(f"/{name}") for k in tree())


def listed_files(folder: str) -> dict[str, set[str]]:
    """Returns the files that the README of a folder lists per subfolder: first cells of table rows."""
    found: dict[str, set[str]] = {}
    for section in (ROOT / folder / "README.md").read_text().split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for subfolder in re.findall(r"`([\w/]+/)`", heading):
            firsts = re.findall(r"^\| (`[^|]*`) \|", body, re.M)
            found[subfolder if subfolder in tree() else f"{folder}/{subfolder}"] = {
                name for first in firsts for name in PATH.findall(first)
            }
    return found


def test_paths_in_text_are_found_and_resolved() -> None:
    text = "`runtime/errors.py`, `control/`, `python bench/chain.py`; not `mine.py:MyOrder`, `plan.bin`, `pwc run a.py`"
    assert PATH.findall(text) == ["runtime/errors.py", "control/", "bench/chain.py"]
    assert exists("control/", "runtime/") and exists("pjrt.py", "runtime/") and exists("pjrt.py", "docs/")
    assert not exists("pjrt.py", "compiler/") and not exists("runtime/pjrt.py", "")
    assert not exists("devices/pjrt.py", "runtime/")


@pytest.mark.parametrize("document", documents())
def test_a_document_names_only_existing_files(document: str) -> None:
    folder = document.rpartition("/")[0]
    names = set(named_in(document)) - USER_FILES
    assert not [name for name in sorted(names) if not exists(name, f"{folder}/" if folder else "")]


@pytest.mark.parametrize("folder", ["compiler", "dialect", "runtime"])
def test_the_readme_of_a_folder_lists_each_of_its_files(folder: str) -> None:
    files = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py"}
    listed = {Path(subfolder) / name for subfolder, names in listed_files(folder).items() for name in names}
    assert {p.as_posix() for p in files} == {p.as_posix() for p in listed}


def test_the_runtime_readme_lists_every_file_with_a_lock() -> None:
    text = (ROOT / "runtime" / "README.md").read_text()
    listed = set(PATH.findall(text[text.index("## Locks") : text.index("## Hangs")]))
    made = re.compile(r"threading\.(?:R?Lock|Event|Condition|\w*Semaphore|Barrier)\b|\bGate\(\)|ThreadPool|Queue\(\)")
    files = {p.name for p in (ROOT / "runtime").rglob("*.py") if made.search(p.read_text())}
    assert files and not files - listed
