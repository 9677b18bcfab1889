"""Parses the source argument of a command, for example `model.py:step`. A source is a Python file or module with a
program, a dump of IR, or a plan file.
"""

import contextlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

METAVAR = "SRC.py[:PROGRAM] | PKG.MODULE:PROGRAM"
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Source:
    """A file, or a module by its dotted name. `program` is the name of the program in it, if given."""

    path: Path
    program: str | None = None
    module: str = ""

    @property
    def is_python(self) -> bool:
        return bool(self.module) or self.path.suffix == ".py"

    @property
    def is_dump(self) -> bool:
        return not self.module and self.path.suffix == ".mlir"

    def __str__(self) -> str:
        return self.module or str(self.path)

    @property
    def command(self) -> str:
        """The command that runs the source in plain Python."""
        return f"python -m {self.module}" if self.module else f"python {self.path}"


def read_spec(spec: str) -> Source:
    """Parses `model.py:step`, `package.model:step`, or the path of a file."""
    before, _, name = spec.rpartition(":")
    if before.endswith(".py"):
        return Source(Path(before), name)
    if before and _DOTTED.fullmatch(before) and not Path(spec).exists():
        return Source(Path(before), name, before)
    path = Path(spec)
    dotted = "." in spec and _DOTTED.fullmatch(spec) and path.suffix not in (".py", ".mlir")
    if dotted and not path.exists() and _is_module(spec):
        return Source(path, None, spec)
    return Source(path)


def _is_module(name: str) -> bool:
    """Returns whether such a module exists, as far as possible without running code."""
    on_path(Path.cwd())
    package = name.partition(".")[0]
    return package in sys.modules or importlib.util.find_spec(package) is not None


def on_path(folder: Path) -> None:
    """Adds a folder to the import path until the command ends: a function may import when it is traced."""
    entry = str(folder.resolve())
    if entry in sys.path:
        return
    sys.path.insert(0, entry)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(partial(_off_path, entry))


def _off_path(entry: str) -> None:
    with contextlib.suppress(ValueError):
        sys.path.remove(entry)
