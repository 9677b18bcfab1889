"""The source that a command is given: a Python file or module with a program, a dump, or a plan."""

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from pathways.api.program import Program as ProgramFunction
from pathways.cli.errors import BadSource, SourceFailed
from pathways.compiler.frontends.jax.jax_errors import translate
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.user_line import where_of_exception

METAVAR = "SRC.py[:PROGRAM] | PKG.MODULE:PROGRAM"
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Source:
    """A file, or a module by its dotted name; `program` is the name of the program in it, where one is given."""

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
        """The command that runs it in Python alone."""
        return f"python -m {self.module}" if self.module else f"python {self.path}"


def read_spec(spec: str) -> Source:
    """Reads `model.py:step`, `package.model:step`, or the path of a file."""
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
    """Returns whether there is such a module, as far as can be told without running anything."""
    _on_path(Path.cwd())
    package = name.partition(".")[0]
    return package in sys.modules or importlib.util.find_spec(package) is not None


def load_program(source: Source) -> ProgramFunction:
    """Loads the program of a Python file or module: the one named, or the only one. Raises PWC0801, PWC0802."""
    if not source.module and not source.path.is_file():
        raise PathwaysError(_bad(source, "no such file", "a Python file with a pw.program", "check the path"))
    if not source.is_python:
        rule = "a .py file, a module, a .mlir dump or a plan"
        raise PathwaysError(_bad(source, "a file that is not Python", rule, "see pwc --help"))
    name, found = source.program, vars(_import(source))
    programs = {n: v for n, v in found.items() if isinstance(v, ProgramFunction)}
    distinct = list({id(v): n for n, v in reversed(programs.items())}.values())[::-1]
    if name is not None and name in programs:
        return programs[name]
    if name is None and len(distinct) == 1:
        return programs[distinct[0]]
    known = ", ".join(programs) or "none"
    have = f"programs: {known}" if name is None else f"no program {name}; programs: {known}"
    raise PathwaysError(_bad(source, have, "one pw.program, or its name", f"{source}:NAME"))


def _import(source: Source) -> ModuleType:
    try:
        return _module(source) if source.module else _file(source)
    except PathwaysError:
        raise
    except SystemExit as error:
        raise _failed(source, error, "it was imported", f"{source.command} shows the whole traceback") from None
    except Exception as error:
        if found := translate(error, None):
            raise PathwaysError(*found) from error
        advice = f"{source.command} shows the whole traceback"
        if isinstance(error, ImportError) and "no known parent package" in str(error):
            advice = "name it as a module, from the folder that holds its package: PKG.MODULE:PROGRAM"
        raise _failed(source, error, "it was imported", advice) from error


def _module(source: Source) -> ModuleType:
    """Imports a module by name, as `python -m` finds it: from the current folder on."""
    _on_path(Path.cwd())
    try:
        return importlib.import_module(source.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source.module}.".startswith(f"{error.name}."):
            raise  # a module that it imports is missing
        have, rule = f"no module {error.name} in {Path.cwd()}, nor installed", "a module, or a file that ends in .py"
        raise PathwaysError(_bad(source, have, rule, "run it from the folder that holds the package")) from None


def _file(source: Source) -> ModuleType:
    """Imports a file; one in a package (a folder with __init__.py) as its module, so that relative imports work."""
    path = source.path.resolve()
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    _on_path(path.parent)
    if len(names) > 1 and all(map(str.isidentifier, names)) and not _is_taken(names[0], root):
        _on_path(root)
        return _of_package(source, path, ".".join(names[:-1] if path.stem == "__init__" else names))
    spec = importlib.util.spec_from_file_location(f"__pwc__{path.stem}", source.path)
    assert spec is not None and spec.loader is not None  # as for every name that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _is_taken(name: str, root: Path) -> bool:
    """Returns whether another package of this name is imported already, not from `root`: a folder may be `json`."""
    known = sys.modules.get(name)
    return known is not None and str(root / name) not in list(getattr(known, "__path__", []))


def _of_package(source: Source, path: Path, name: str) -> ModuleType:
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or not os.path.samefile(found, path):
        have, rule = f"a module {name} that is {found}", f"{path} to be the module {name}"
        raise PathwaysError(_bad(source, have, rule, "another name for the package, or another folder to start from"))
    return module


def _on_path(folder: Path) -> None:
    """Lets the program import from a folder until the command ends: a function may import when it is traced."""
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


def lower_program(program: ProgramFunction, source: Source, platform: str) -> Any:
    """Traces a program on its `example_args`; the user's own exceptions become PWC0802 at the user's line."""
    try:
        return program.lower_for(platform, *program.example_args)
    except PathwaysError:
        raise
    except Exception as error:
        advice = f"{program.name}.lower(*{program.name}.example_args) in Python shows the whole traceback"
        raise _failed(source, error, f"{program.name} was traced", advice) from error


def _failed(source: Source, error: BaseException, stage: str, advice: str) -> PathwaysError:
    message = str(error).strip().splitlines()
    shown = message[0] if message else "no message"
    where = where_of_exception(error)
    if isinstance(error, SyntaxError) and error.filename:
        where = Where(error.filename, error.lineno or 1)
    kind = type(error).__name__
    return PathwaysError(
        SourceFailed(path=str(source), kind=kind, stage=stage, message=shown, advice=advice, where=where)
    )


def _bad(source: Source, have: str, rule: str, advice: str) -> BadSource:
    return BadSource(path=str(source), have_=have, rule=rule, advice=advice)
