"""Measures what the tests notice: makes small mistakes in the code, one at a time, and counts those that no test sees.

    python bench/mutants.py record                 runs all tests once, noting which lines each runs, and its time
    python bench/mutants.py run --count 1000       makes 1,000 mutants at random and runs the tests of each
    python bench/mutants.py run --only FILE:NUMBER one mutant again, with what pytest prints

A mutant changes one operator, constant, condition, call or result within a function. The tests that run its line are
tried, quickest first, until one fails: those of `make test`, then those that only `make test-all` has. Each mutant
lives in a process forked from one that has imported JAX and this project, so it costs its tests and about a second.
A mutant whose tests take longer than the budget counts as surviving.
"""

import ast
import collections
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("compiler", "dialect", "runtime")
RECORD = ROOT / "build" / "mutants"
"""The folder in which `record` writes `coverage` and `seconds.json`."""
QUICK_BUDGET_S, LONG_BUDGET_S = 40.0, 60.0
"""Seconds of tests per mutant, of `make test` and of those that `make test-all` adds."""

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
_LEFT_ALONE = ("annotation", "returns", "decorator_list", "type_comment", "args")
_NOT_MUTATED = ("__repr__", "__str__", "__hash__", "__del__")


@dataclass(frozen=True)
class Mutant:
    """One mistake: the number of a change within a file, and what it is."""

    file: str
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} (line {self.line}: {self.what})"


@dataclass
class _Change:
    """A place to change: the node of the tree, and what to do with it."""

    node: ast.AST
    what: str
    apply: Callable[[], None]


def _changes(tree: ast.Module) -> Iterator[_Change]:
    """Finds all changes within functions, in the order of the source. Texts, errors and annotations are left alone."""
    for function in _outermost(tree):
        if function.name not in _NOT_MUTATED:
            for statement in function.body:
                yield from _of(statement, function.body)


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
            yield from _outermost(node)


def _of(node: ast.AST, siblings: list[ast.stmt]) -> Iterator[_Change]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return
    yield from _of_this(node, siblings)
    for name, value in ast.iter_fields(node):
        if name in _LEFT_ALONE and not isinstance(node, ast.Call):
            continue
        children: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        for child in children:
            if isinstance(child, ast.AST):
                yield from _of(child, children if isinstance(child, ast.stmt) else siblings)


def _of_this(node: ast.AST, siblings: list[ast.stmt]) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if (other := _SWAPS.get(type(op))) is not None:
                    yield _Change(node, f"{type(op).__name__} -> {other.__name__}", _setter(ops, at, other()))
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            is_text = isinstance(node, ast.BinOp) and _is_text(node.left, node.right)
            if (other := _SWAPS.get(type(op))) is not None and not is_text:
                yield _Change(node, f"{type(op).__name__} -> {other.__name__}", _attribute(node, "op", other()))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change(node, "not x -> x", _attribute(node, "operand", ast.UnaryOp(ast.Not(), operand)))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield _Change(node, "condition negated", _attribute(node, "test", ast.UnaryOp(ast.Not(), test)))
        case ast.Constant(value=bool(value)):
            yield _Change(node, f"{value} -> {not value}", _attribute(node, "value", not value))
        case ast.Constant(value=int(value) | float(value)):
            yield _Change(node, f"{value} -> {value + 1}", _attribute(node, "value", value + 1))
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTIONS:
            yield _Change(
                node, f"{name} -> {_OTHER_FUNCTIONS[name]}", _attribute(node.func, "id", _OTHER_FUNCTIONS[name])
            )
        case ast.Expr(value=ast.Call()):
            at = siblings.index(node)
            yield _Change(node, "call left out", _setter(siblings, at, ast.Pass()))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _Change(node, "returns None", _attribute(node, "value", ast.Constant(None)))
        case ast.Break():
            yield _Change(node, "break -> continue", _setter(siblings, siblings.index(node), ast.Continue()))
        case ast.Continue():
            yield _Change(node, "continue -> break", _setter(siblings, siblings.index(node), ast.Break()))
        case _:
            return


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(o, ast.JoinedStr) or (isinstance(o, ast.Constant) and isinstance(o.value, str)) for o in operands
    )


def _setter(items: list[Any], at: int, value: Any) -> Callable[[], None]:
    def apply() -> None:
        items[at] = ast.copy_location(value, items[at]) if hasattr(items[at], "lineno") else value

    return apply


def _attribute(node: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a file."""
    found = enumerate(_changes(_parsed(file)))
    return [Mutant(file, number, getattr(change.node, "lineno", 0), change.what) for number, change in found]


def mutated_code(mutant: Mutant) -> types.CodeType:
    """Compiles the file of a mutant with its change."""
    tree = _parsed(mutant.file)
    change = next(c for n, c in enumerate(_changes(tree)) if n == mutant.number)
    change.apply()
    return compile(ast.fix_missing_locations(tree), str(ROOT / mutant.file), "exec")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


@dataclass
class Functions:
    """All functions of this project that are loaded, by file, qualified name and first line."""

    by_place: dict[tuple[str, str, int], list[types.FunctionType]] = field(default_factory=dict[Any, Any])

    @classmethod
    def loaded(cls) -> "Functions":
        found: dict[tuple[str, str, int], list[types.FunctionType]] = collections.defaultdict(list)
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                code = one.__code__
                if "/pathways/" in code.co_filename or str(ROOT) in code.co_filename:
                    found[os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno].append(one)
        return cls(dict(found))

    def become(self, mutant: Mutant) -> int:
        """Replaces the code of the functions of a file by that of a mutant; returns how many differ."""
        changed = 0
        for code in _codes(mutated_code(mutant)):
            for function in self.by_place.get((str(ROOT / mutant.file), code.co_qualname, code.co_firstlineno), ()):
                same = function.__code__.co_code == code.co_code and function.__code__.co_consts == code.co_consts
                if not same and function.__code__.co_freevars == code.co_freevars:
                    function.__code__ = code.replace(co_filename=function.__code__.co_filename)
                    changed += 1
        return changed


def load_everything() -> None:
    """Imports all of this project, and what its tests import, before any device is made."""
    sys.path[:0] = [str(ROOT / "tests")]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import pathways

    for module in pkgutil.walk_packages(pathways.__path__, "pathways."):
        if "ray_trial" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("pytest", "hypothesis", "numpy.testing", "jax.numpy", "click.testing", "optax", "flax.linen"):
        importlib.import_module(name)


@dataclass(frozen=True)
class Records:
    """Lists the tests that run each line, the seconds of each test, and the tests of `test-all` alone."""

    lines: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]
    long: frozenset[str]

    @classmethod
    def read(cls) -> "Records":
        known = json.loads((RECORD / "seconds.json").read_text())
        data: Any = coverage.CoverageData(str(RECORD / "coverage"))
        data.read()
        lines: dict[tuple[str, int], list[str]] = {}
        for file in data.measured_files():
            name = os.path.relpath(file, ROOT) if os.path.isabs(file) else file
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {context.rpartition("|")[0] or context for context in contexts}
                lines[name, line] = sorted(tests, key=lambda t: known["seconds"].get(t, 0.0))
        return cls(lines, known["seconds"], frozenset(known["long"]))

    def tests_of(self, mutant: Mutant, *, long: bool) -> list[str]:
        """The tests that run the line of a mutant, quickest first, within the budget."""
        budget = LONG_BUDGET_S if long else QUICK_BUDGET_S
        chosen: list[str] = []
        for test in self.lines.get((mutant.file, mutant.line), ()):
            if test not in self.seconds or (test in self.long) != long:
                continue
            budget -= self.seconds[test]
            if budget < 0:
                break
            chosen.append(test)
        return chosen


def run_tests(tests: Sequence[str], mutant: Mutant | None, functions: Functions, log: Path) -> tuple[str, float]:
    """Runs tests in a forked process under a mutant; returns what came of it, and the seconds that it took."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 9
        try:
            out = log.open("w")
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            changed = 1 if mutant is None else functions.become(mutant)
            importlib.import_module("support.forked_python").serve_from_a_fork()
            code = int(pytest.main([*_OPTIONS, *tests])) if changed else 7
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return _ended(pid, begin, begin + 20.0 + 4.0 * _expected(tests)), time.monotonic() - begin


_OPTIONS = (
    "--all",
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:unraisableexception",
    "-p",
    "no:cov",
    "--no-header",
    "--tb=short",
    "--may-leave",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
_seconds: dict[str, float] = {}


def _expected(tests: Sequence[str]) -> float:
    return sum(_seconds.get(test, 1.0) for test in tests)


def _ended(pid: int, begin: float, until: float) -> str:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with_group(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(status)
            return _OUTCOMES.get(code, "killed" if code < 0 else "error")
        if time.monotonic() > until:
            with_group(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "killed by time"
        time.sleep(0.01)


_OUTCOMES = {0: "survived", 1: "killed", 2: "killed", 4: "not found", 5: "no test", 7: "no function"}
"""By the exit code of pytest; a negative one is a crash of the process, which kills the mutant."""


def with_group(pid: int, how: int) -> None:
    """Sends a signal to a process and all that it has started in its session."""
    with contextlib.suppress(OSError):
        os.killpg(pid, how)


def judge(mutant: Mutant, records: Records, functions: Functions, log: Path) -> dict[str, Any]:
    """Runs the tests of a mutant: those of `make test`, then those that only `make test-all` has."""
    outcome: dict[str, Any] = {"mutant": [mutant.file, mutant.number, mutant.line, mutant.what]}
    for stage, long in (("test", False), ("test-all", True)):
        tests = records.tests_of(mutant, long=long)
        came, seconds = ("no test", 0.0) if not tests else _in_chunks(tests, mutant, functions, log)
        outcome[stage] = [came, round(seconds, 1), len(tests)]
        if came.startswith("killed"):
            break
    return outcome


def _in_chunks(tests: list[str], mutant: Mutant, functions: Functions, log: Path) -> tuple[str, float]:
    """Runs the first few tests alone: most mutants die there, and other files need not be collected."""
    total = 0.0
    came = "no test"
    for chunk in (tests[:6], tests[6:40], tests[40:]):
        if chunk:
            came, seconds = run_tests(chunk, mutant, functions, log)
            total += seconds
            if came != "survived":
                break
    return came, total


@click.group(help=__doc__)
def main() -> None:
    """Measures what the tests notice."""


@main.command()
def record() -> None:
    """Runs all tests once, with coverage by test."""
    RECORD.mkdir(parents=True, exist_ok=True)
    settings = RECORD / "coveragerc"
    include = "".join(f"\n  {folder}/*" for folder in (*FOLDERS, "pathways", "cli", "viz"))
    settings.write_text(
        f"[run]\nbranch = True\nrelative_files = True\nparallel = True\npatch = subprocess, fork\n"
        f"data_file = {RECORD / 'coverage'}\ndisable_warnings = no-data-collected,module-not-measured\n"
        f"include ={include}\n"
    )
    folders = [str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    measured = ["--cov", f"--cov-config={settings}", "--cov-branch", "--cov-context=test", "--cov-report="]
    subprocess.run([*tests, "--all", "-p", "mutants", *measured], cwd=ROOT, env=environment, check=False)
    listed = [sys.executable, "-m", "pytest", "-q", "--collect-only"]
    lines = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    quick = {line for line in lines if "::" in line}
    seconds: dict[str, float] = json.loads((RECORD / "seconds.json").read_text())["seconds"]
    text = json.dumps({"seconds": seconds, "long": sorted(set(seconds) - quick)})
    (RECORD / "seconds.json").write_text(text)


_taken: dict[str, float] = collections.defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the time of each test, where this file is a plugin of pytest."""
    _taken[report.nodeid] += report.duration if report.outcome != "failed" else 1e6


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        (RECORD / "seconds.json").write_text(json.dumps({"seconds": _taken}))


@main.command()
@click.option("--count", default=1000, help="how many mutants")
@click.option("--seed", default=0)
@click.option("--only", default="", help="FILE:NUMBER, one mutant")
@click.option("--part", default="0/1", help="I/N: every Nth mutant, from the Ith")
@click.option("--output", type=click.Path(path_type=Path), default=RECORD / "outcomes.jsonl")
def run(count: int, seed: int, only: str, part: str, output: Path) -> None:
    """Makes mutants and runs their tests."""
    records = Records.read()
    _seconds.update(records.seconds)
    load_everything()
    functions = Functions.loaded()
    files = [str(p.relative_to(ROOT)) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
    if only:
        file, _, number = only.rpartition(":")
        chosen = [mutants_of(file)[int(number)]]
    else:
        everything = [m for file in files for m in mutants_of(file)]
        chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    index, parts = map(int, part.split("/"))
    done: set[tuple[str, int]] = set()
    if output.exists() and not only:
        done = {tuple(json.loads(line)["mutant"][:2]) for line in output.read_text().splitlines()}
    log = output.with_suffix(f".{index}.log")
    for mutant in chosen[index::parts]:
        if (mutant.file, mutant.number) in done:
            continue
        outcome = judge(mutant, records, functions, log)
        with output.open("a") as file:
            file.write(json.dumps(outcome) + "\n")
        if only:
            print(log.read_text())
            print(outcome)


if __name__ == "__main__":
    main()
