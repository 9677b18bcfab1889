"""Imports the user's Python file or module, and returns the `pw.program` or the loss function that it defines. `pwc
compile`, `run` and `search` call it. Exceptions of user code become the error PWC0802.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pathways.api.program import Program as ProgramFunction
from pathways.cli.errors import BadSource, SourceFailed
from pathways.cli.source_spec import Source, on_path
from pathways.compiler.frontends.jax.jax_errors import translate
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.user_line import where_of_exception

EXAMPLES = ("example_args", "example")
"""Names under which a file provides the example arguments of its loss."""


def load_program(source: Source) -> ProgramFunction:
    """Loads the program of a Python file or module: the named one, or the only one. Raises PWC0801, PWC0802."""
    if not source.module and not source.path.is_file():
        raise PathwaysError(_bad(source, "no such file", "a Python file with a pw.program", "check the path"))
    if not source.is_python:
        rule = "a .py file, a module, or a .mlir dump"
        raise PathwaysError(_bad(source, "a file that is not Python", rule, "pwc compile model.py -o plan.bin"))
    name, found = source.program, vars(_import(source))
    programs = {n: v for n, v in found.items() if isinstance(v, ProgramFunction)}
    distinct = list({id(v): n for n, v in reversed(programs.items())}.values())[::-1]
    if name is not None and name in programs:
        return programs[name]
    if name is None and len(distinct) == 1:
        return programs[distinct[0]]
    known = ", ".join(programs) or "none"
    have = f"programs: {known}" if name is None else f"no program {name}; programs: {known}"
    advice = f"{source}:NAME selects a program" if programs else "mark a function with @pw.program"
    raise PathwaysError(_bad(source, have, "exactly one pw.program, or the name of one", advice))


def load_loss(source: Source, example: str | None, specs: str | None) -> tuple[Any, tuple[Any, ...], Any]:
    """Loads the inputs of `pwc search`: a program or a plain function, its example arguments, and its specs.

    Raises PWC0801, PWC0802.
    """
    if not source.is_python or (not source.module and not source.path.is_file()):
        raise PathwaysError(_bad(source, "no such Python file", "a Python file with a loss", "check the path"))
    found = vars(_import(source))
    name = source.program or "loss"
    loss = found.get(name)
    if not callable(loss):
        functions = [n for n, v in found.items() if callable(v) and getattr(v, "__module__", "") == found["__name__"]]
        have = f"no function named {name}; functions: {', '.join(functions) or 'none'}"
        raise PathwaysError(_bad(source, have, "the name of a loss function or a pw.program", f"{source}:NAME"))
    param_specs = _named(source, found, specs) if specs is not None else None
    if isinstance(loss, ProgramFunction) and example is None:
        return loss, loss.example_args, param_specs
    chosen = example or next((n for n in EXAMPLES if n in found), None)
    if chosen is None:
        rule = f"arguments of {name}: {' or '.join(EXAMPLES)}, a tuple or a function that returns a tuple"
        raise PathwaysError(
            _bad(source, "no example arguments", rule, "define them, or name a variable: --example NAME")
        )
    given = _named(source, found, chosen)
    try:
        arguments = given() if callable(given) else given
    except Exception as error:
        advice = f"{source.command} shows the whole traceback"
        raise _failed(source, error, f"{chosen} was called", advice) from error
    if not isinstance(arguments, tuple | list):
        have = f"{chosen}, which is a {type(arguments).__name__}"
        raise PathwaysError(_bad(source, have, f"the arguments of {name} as a tuple", f"{chosen} = (params, batch)"))
    return loss, tuple(cast("tuple[Any, ...]", arguments)), param_specs


def _named(source: Source, found: dict[str, Any], name: str) -> Any:
    if name not in found:
        raise PathwaysError(
            _bad(source, f"nothing named {name}", "a name that the file defines", f"check the spelling of {name}")
        )
    return found[name]


def _import(source: Source) -> ModuleType:
    try:
        with Activity(f"importing {source}"):
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
            advice = "give it as a module, in the folder that contains its package: PKG.MODULE:PROGRAM"
        raise _failed(source, error, "it was imported", advice) from error


def _module(source: Source) -> ModuleType:
    """Imports a module by name as `python -m` does, starting from the current folder."""
    on_path(Path.cwd())
    try:
        return importlib.import_module(source.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source.module}.".startswith(f"{error.name}."):
            raise  # a module imported by this one is missing
        have, rule = f"no module {error.name} in {Path.cwd()}, nor installed", "a module, or a file that ends in .py"
        raise PathwaysError(_bad(source, have, rule, "run pwc in the folder that contains the package")) from None


def _file(source: Source) -> ModuleType:
    """Imports a file. A file in a package (a folder with __init__.py) is imported as a module for relative imports."""
    path = source.path.resolve()
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    on_path(path.parent)
    if len(names) > 1 and all(map(str.isidentifier, names)) and not _is_taken(names[0], root):
        on_path(root)
        return _of_package(source, path, ".".join(names[:-1] if path.stem == "__init__" else names))
    spec = importlib.util.spec_from_file_location(f"__pwc__{path.stem}", source.path)
    assert spec is not None and spec.loader is not None  # as for every name that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _is_taken(name: str, root: Path) -> bool:
    """Returns whether another package of this name, not from `root`, is imported: a folder may be named `json`."""
    known = sys.modules.get(name)
    return known is not None and str(root / name) not in list(getattr(known, "__path__", []))


def _of_package(source: Source, path: Path, name: str) -> ModuleType:
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or not os.path.samefile(found, path):
        have, rule = f"a module {name} that is {found}", f"a module {name} that is {path}"
        raise PathwaysError(_bad(source, have, rule, "rename the package, or run pwc in another folder"))
    return module


def lower_program(program: ProgramFunction, source: Source, platform: str) -> Any:
    """Traces a program on its `example_args`. The user's own exceptions become PWC0802 at the user's line."""
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
