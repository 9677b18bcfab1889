"""The code of the guides: what a page holds, and running it from top to bottom as a reader would.

* A `python` block runs, in one namespace a page. One with `title="model.py"` is a file that the page writes.
* A `text` block right behind a `python` or `console` block is what that prints; `...` stands for anything.
* In a `console` block the lines `$ pwc ...` and `$ python FILE` run, in the folder of the page, and the lines below are
  what they print. One that ends with `|| echo "exit code $?"` must fail.
* `<!-- python` to `-->` is code that runs and is not shown: what a reader has already.
* `<!-- not run: REASON -->` right before a block leaves it out.

    python -m support.pages PAGE...     runs each in a folder of its own
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(
    r"^(?P<left>(?:<!-- not run: (?P<reason>[^\n]*?) -->\n\n?)?)"
    r"(?:```(?P<language>[a-z]+)(?P<info>[^\n]*)\n(?P<code>.*?)^```$|<!-- python\n(?P<hidden>.*?)^-->$)",
    re.S | re.M,
)
FAILS = ' || echo "exit code $?"'
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One block of a page, and the line that its code begins at."""

    language: str
    code: str
    line: int
    title: str = ""
    left_out: str = ""
    adjoins: bool = False
    """Nothing stands between it and the block before."""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    end = -1
    for found in _BLOCK.finditer(text):
        hidden = found["hidden"]
        title = _TITLE.search(found["info"] or "")
        start = found.start("code") if hidden is None else found.start("hidden")
        yield Block(
            language=found["language"] or "python",
            code=(found["code"] or "") if hidden is None else hidden,
            line=text.count("\n", 0, start) + 1,
            title=title[1] if title else "",
            left_out=found["reason"] or "",
            adjoins=end >= 0 and not text[end : found.start()].strip(),
        )
        end = found.end()


def matches(wanted: str, printed: str) -> bool:
    """Whether a text is what was printed: `...` stands for anything, and how many blanks there are does not count."""
    parts = [re.escape(part) for part in _stripped(wanted).split("...")]
    return re.fullmatch(".*?".join(parts), _stripped(printed), re.S) is not None


def run_page(path: Path) -> None:
    """Runs a page in the current folder. Raises whatever its code raises, AssertionError where it prints otherwise."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(path.read_text()):
        if block.left_out:
            printed = ""
        elif block.language == "text":
            assert not block.adjoins or matches(block.code, printed), f"{path}:{block.line}: it prints\n{printed}"
        elif block.title:
            Path(block.title).write_text(block.code)
        elif block.language == "python":
            printed = _run_python(block, path, namespace)
        elif block.language == "console":
            _run_console(block, path)


def _run_python(block: Block, path: Path, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), namespace)
    return out.getvalue()


def _run_console(block: Block, path: Path) -> None:
    """Runs each command, and compares it with the lines below it, if there are any."""
    for part in re.split(r"^ *\$ ", block.code, flags=re.M)[1:]:
        command, _, wanted = part.replace("\\\n", " ").partition("\n")
        command, fails, _ = command.partition(FAILS)
        code, printed = _command(shlex.split(command, comments=True))
        if fails:
            code, printed = int(code == 0), f"{printed}\nexit code {code}\n"
        assert code == 0, f"{path}:{block.line}: {command} ends with {code}\n{printed}"
        assert not wanted.strip() or matches(wanted, printed), f"{path}:{block.line}: {command} prints\n{printed}"


def _command(words: list[str]) -> tuple[int, str]:
    """Runs `pwc` or a Python file in this process, where JAX is imported already: exit code and what is printed."""
    if words[0] == "pwc":
        from support.processes import pwc_here

        code, out, err = pwc_here(*words[1:])
        return code, out + err
    assert words[0] == "python" and len(words) == 2, words
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(words[1], run_name="__main__")
    return 0, out.getvalue()


def _stripped(text: str) -> str:
    """Text with one blank where there are several: columns are as wide as what is in them."""
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            run_page(page)
            sys.path.remove(folder)
            os.chdir(page.parent)
