"""What a command is given: a Python file with a program, a dump, or a plan."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, cast

from pathways.api.program import Program as ProgramFunction
from pathways.cli.errors import BadSource, SourceFailed
from pathways.compiler.frontend.compat import where_of_exception
from pathways.compiler.frontend.jax_errors import translate
from pathways.dialect.diagnostics import PathwaysError, Where


def split_spec(spec: str) -> tuple[Path, str | None]:
    """`model.py:step` -> path and name."""
    path, colon, name = spec.rpartition(":")
    return (Path(path), name) if colon and path.endswith(".py") else (Path(spec), None)


def load_program(path: Path, name: str | None) -> ProgramFunction:
    """The program in a Python file: the one named, or the only one. Raises PWC0801, PWC0802."""
    if not path.is_file():
        raise PathwaysError(_bad(path, "no such file", "a Python file with a pw.program", "check the path"))
    found = cast("dict[str, Any]", vars(_import(path)))
    programs = {n: v for n, v in found.items() if isinstance(v, ProgramFunction)}
    distinct = list({id(v): n for n, v in reversed(programs.items())}.values())[::-1]
    if name is not None and name in programs:
        return programs[name]
    if name is None and len(distinct) == 1:
        return programs[distinct[0]]
    known = ", ".join(programs) or "none"
    have = f"programs: {known}" if name is None else f"no program {name}; programs: {known}"
    raise PathwaysError(_bad(path, have, "one pw.program, or its name", f"{path}:NAME"))


def _import(path: Path) -> Any:
    module_name = f"__pwc__{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PathwaysError(
            _bad(path, "a file that is not Python", "a .py file, a .mlir dump or a plan", "see pwc --help")
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except PathwaysError:
        raise
    except SystemExit as error:
        raise _failed(path, error, "it was imported", f"python {path} shows the whole traceback") from None
    except Exception as error:
        if found := translate(error, None):
            raise PathwaysError(*found) from error
        raise _failed(path, error, "it was imported", f"python {path} shows the whole traceback") from error
    finally:
        sys.path.pop(0)
    return module


def lower_program(program: ProgramFunction, path: Path, platform: str) -> Any:
    """Traces a program on its `example_args`; the user's own exceptions become PWC0802 at the user's line."""
    try:
        return program.lower_for(platform, *program.example_args)
    except PathwaysError:
        raise
    except Exception as error:
        advice = f"{program.name}.lower(*{program.name}.example_args) in Python shows the whole traceback"
        raise _failed(path, error, f"{program.name} was traced", advice) from error


def _failed(path: Path, error: BaseException, stage: str, advice: str) -> PathwaysError:
    message = str(error).strip().splitlines()
    shown = message[0] if message else "no message"
    where = where_of_exception(error)
    if isinstance(error, SyntaxError) and error.filename:
        where = Where(error.filename, error.lineno or 1)
    kind = type(error).__name__
    return PathwaysError(
        SourceFailed(path=str(path), kind=kind, stage=stage, message=shown, advice=advice, where=where)
    )


def _bad(path: Path, have: str, rule: str, advice: str) -> BadSource:
    return BadSource(path=str(path), have_=have, rule=rule, advice=advice)
