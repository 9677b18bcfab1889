"""Parses the code blocks of a guide's page, and runs them from top to bottom as a reader would.

* A `python` block runs. All blocks of a page share one namespace. With `title="model.py"`, the block is written to a
  file instead.
* A `text` block directly after another block holds the expected output of that block; `...` matches any text.
* In a `console` block, the commands `$ pwc ...` and `$ python FILE` run in the folder of the page. The lines below a
  command are its expected output. A command that ends with `|| echo "exit code $?"` must fail.
* `<!-- python` to `-->` is code that runs and is not shown, because the reader has it already.
* `<!-- not run: REASON -->` directly before a block skips the block.

    python -m support.pages PAGE...     runs each page in its own temporary folder
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
    """One block of a page, and the number of the first line of its code."""

    language: str
    code: str
    line: int
    title: str = ""
    left_out: str = ""
    adjoins: bool = False
    """Only blank text separates this block from the previous block."""


def blocks(text: str) -> Iterator[Block]:
    """Yields the blocks of a page, in order."""
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
    """Checks whether printed text matches expected text: `...` matches any text, and runs of blanks count as one."""
    parts = [re.escape(part) for part in _stripped(wanted).split("...")]
    return re.fullmatch(".*?".join(parts), _stripped(printed), re.S) is not None


def run_page(path: Path) -> None:
    """Runs a page in the current folder. Raises its code's errors, and AssertionError if the output does not match."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would not see that a file changes twice within a second
    sys.dont_write_bytecode = True
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = ""
    for block in blocks(path.read_text()):
        if block.left_out:
            printed = None
        elif block.language == "text":
            wrong = block.adjoins and printed is not None and not matches(block.code, printed)
            assert not wrong, f"{path}:{block.line}: it prints\n{printed}"
        elif block.title:
            Path(block.title).write_text(block.code)
            printed = None
        elif block.language == "python":
            printed = _run_python(block, path, namespace)
        elif block.language == "console":
            printed = _run_console(block, path)


def _run_python(block: Block, path: Path, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), namespace)
    return out.getvalue()


def _run_console(block: Block, path: Path) -> str:
    """Runs each command, and compares its output with the lines below it, if there are any; returns all output."""
    everything = ""
    for part in re.split(r"^ *\$ ", block.code, flags=re.M)[1:]:
        command, _, wanted = part.replace("\\\n", " ").partition("\n")
        command, fails, _ = command.partition(FAILS)
        code, printed = _command(shlex.split(command, comments=True))
        if fails:
            code, printed = int(code == 0), f"{printed.rstrip()}\nexit code {code}\n"
        assert code == 0, f"{path}:{block.line}: {command} ends with {code}\n{printed}"
        assert not wanted.strip() or matches(wanted, printed), f"{path}:{block.line}: {command} prints\n{printed}"
        everything += printed
    return everything


def _command(words: list[str]) -> tuple[int, str]:
    """Runs `pwc` or a Python file in this process, which has JAX imported; returns the exit code and the output."""
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
    """Replaces runs of blanks by one blank, because the width of a column depends on its contents."""
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            here = Path.cwd()
            os.chdir(folder)
            sys.path.insert(0, folder)
            run_page(here / page)
            sys.path.remove(folder)
            os.chdir(here)
