"""The code of the guides runs unchanged and prints the output that the guides show."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.pages import Block, blocks, matches, run_page
from support.processes import run_python

from pathways.cli.explain import catalogs
from pathways.cli.main import main

ROOT = Path(__file__).parent.parent
GUIDES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
ERROR_PAGES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs" / "errors").glob("*.md"))
PAGES = [*GUIDES, *ERROR_PAGES]
SKIP_REASONS = {
    "it installs",
    "a fragment, which the first hour runs",
    "it needs Shardy's own Python package",
    "it needs Ray",
    "it needs several machines",
    "it needs another jaxlib",
    "it takes minutes",
    "it shows a mistake of this compiler",
    "it needs a hostile process",
}
"""Allowed reasons for not running a block."""


def blocks_of(page: str) -> list[Block]:
    return list(blocks((ROOT / page).read_text()))


LANGUAGES = ("python", "console", "text", "toml", "sh", "yaml")
"""Languages of blocks: the first two run, `text` is expected output, and commands in `sh` must exist."""


@pytest.mark.long(
    "the code of a guide runs: 2 to 18 s each",
    keep=(
        "README.md",
        "docs/index.md",
        "docs/shardy.md",
        "docs/control-flow.md",
        "docs/concepts.md",
        "docs/coming-from-jax.md",
        "docs/programs.md",
        "docs/reading-a-dump.md",
    ),
)
@pytest.mark.parametrize("page", [p for p in GUIDES if any(b.language in ("python", "console") for b in blocks_of(p))])
def test_the_code_of_a_guide_runs(page: str) -> None:
    done = run_python("-m", "support.pages", str(ROOT / page), PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    assert done.returncode == 0, done.stderr


@pytest.mark.long("each error code is provoked: 1 s each", keep=("PWC0206", "PWC0301", "PWC0505"))
@pytest.mark.parametrize("page", ERROR_PAGES, ids=lambda page: Path(page).stem)
def test_the_program_of_an_error_page_prints_what_the_page_shows(page: str) -> None:
    done = run_python("-m", "support.pages", str(ROOT / page), PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    assert done.returncode == 0, done.stderr


def test_each_error_code_has_a_page_with_its_mend() -> None:
    codes = {error.code for error in catalogs()}
    assert {Path(page).stem for page in ERROR_PAGES} == codes
    for page in ERROR_PAGES:
        text = (ROOT / page).read_text()
        assert text.startswith(f"# {Path(page).stem}: ") and "\n## Mend it\n" in text, page
        assert any(b.language in ("python", "console", "text") for b in blocks_of(page)), page


def test_skipped_blocks_give_an_allowed_reason() -> None:
    assert {b.left_out for page in PAGES for b in blocks_of(page)} - {""} <= SKIP_REASONS


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_is_found_and_has_a_known_language(page: str) -> None:
    """Indented blocks and blocks without a language would be skipped without notice."""
    lines = (ROOT / page).read_text().split("\n")
    opened = [i for i, line in enumerate(lines) if re.match(r" *```\w", line)]
    assert {lines[i].split()[0] for i in opened} <= {f"```{name}" for name in LANGUAGES}
    assert opened == [b.line - 2 for b in blocks_of(page) if lines[b.line - 2].startswith("```")]


def test_links_of_the_readme_lead_to_existing_files() -> None:
    """test_site.py checks the links of the guides."""
    links = re.findall(r"\]\((?!https://)([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 20 and not [link for link in links if not (ROOT / link).is_file()]


def commands(page: str) -> Iterator[str]:
    """Yields every call of `pwc` in fenced or indented blocks of a page."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    for line in re.findall(r"^(?:    |\$ |(?:[A-Z_]+=\S+ )?)(pwc [a-z][^\n]*)$", text, re.M):
        yield from (part for part in re.split(r" (?:&&|\|\|) ", line) if part.startswith("pwc "))


def is_known(command: str) -> bool:
    """Tells whether `pwc` has this command, these options and this number of arguments."""
    words = [w for w in shlex.split(command.partition(" > ")[0], comments=True)[1:] if w != "&"]
    group: click.Command = main
    with click.Context(main) as context:
        while isinstance(group, click.Group):
            found = group.get_command(context, words.pop(0))
            if found is None:
                return False
            group = found
        try:
            group.make_context("pwc", words)
        except (click.NoSuchOption, click.MissingParameter):
            return False
        except click.UsageError as error:
            return "unexpected extra argument" not in error.message
        except click.exceptions.Exit:
            pass
    return True


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_guides_are_known(page: str) -> None:
    assert not [command for command in commands(page) if not is_known(command)]


def test_unknown_commands_are_detected() -> None:
    assert is_known("pwc compile a.py --schedule 1f1b   # why") and is_known("pwc cluster start islands=2,devices=1")
    assert not is_known("pwc compiel a.py") and not is_known("pwc compile a.py --shedule x")
    assert not is_known("pwc why") and not is_known("pwc explain PWC0301 PWC0302")


PAGE = """
<!-- python
x = 2
-->

```python
print("x is", x)
```

```text
{says}
```

<!-- not run: it fails -->
```python
raise ValueError
```

```toml title="a.toml"
a = 1
```

```console
$ pwc explain \\
    {code}
{title}: ...
```
"""


@pytest.mark.parametrize(
    ("says", "code", "title", "fails"),
    [
        ("x   is ...", "PWC0301", "PWC0301", ""),
        ("x is 3", "PWC0301", "PWC0301", "page.md:11: it prints"),
        ("x is 2", "PWC9999", "PWC9999", "ends with 2"),
        ("x is 2", "PWC0301", "PWC0302", "page.md:24: pwc explain"),
    ],
)
def test_pages_with_wrong_output_are_detected(
    says: str, code: str, title: str, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(says=says, code=code, title=title))
    if fails:
        with pytest.raises(AssertionError, match=fails):
            run_page(page)
    else:
        run_page(page)
        assert (tmp_path / "a.toml").read_text() == "a = 1\n"
    assert matches("a ... c\nd", "a  b c\nd\n") and not matches("a ... c", "a b d")
