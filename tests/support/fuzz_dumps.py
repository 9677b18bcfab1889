"""Fuzzes dumps of every phase: each mutant must compile to a plan, or be refused with an error code.

By hand: `python tests/support/fuzz_dumps.py FIRST COUNT`. A seed identifies a mutant.
Mutants run in a worker process. If a mutant crashes the worker, a new worker continues with the next mutant.
"""

import random
import re
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.processes import ROOT, run_python

SECONDS = 20
"""Time limit of one mutant; a slower mutant counts as a hang. The largest dump takes 0.1 s."""
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_@%#!$][\w.$@-]*|-?\d+(?:\.\d+)?|\s+|.', re.DOTALL)
_VALUE = r"[^,{}\[\]<>\"]|\"(?:[^\"\\]|\\.)*\"|\[[^\]\n]*?\]+|#?[\w.]*<[^\n]*?>+(?=[,}])"
_ATTRIBUTE = re.compile(rf"(?P<name>\b[a-z][\w.]*) = (?P<value>(?:{_VALUE})+?)(?:, |(?=\}}))")
_NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "1048576",
    "2147483648",
    "9223372036854775807",
    "99999999999999999999",
    "1.5",
)
_STRINGS = ('""', '"\\FF"', '"x"', '"0:2"', '"0:1048576"', '"-1"', '"{}"', '"[["', '"plan"', '"schedule"', '"trace"')
_WORDS = (
    "@m0",
    "@m1",
    "@s0",
    "@nothing",
    "f32",
    "i1",
    "unit",
    "tensor<?xf32>",
    "tensor<*xf32>",
    "none",
    "#sdy.mesh<[]>",
)


def corpus() -> list[str]:
    """Returns the golden dumps of every phase: the inputs and outputs of passes."""
    texts: dict[str, None] = {}
    for path in sorted((ROOT / "tests" / "golden").glob("*.mlir")):
        given, mark, made = path.read_text().partition("\n")[2].partition("// EXPECTED exit 0\n")
        texts.update((t, None) for t in (given, made) if mark and "pw.phase" in t)
    return list(texts)


def mutant(seed: int, texts: list[str]) -> str:
    """Applies one to three changes to one dump; most results are still valid MLIR."""
    rng = random.Random(seed)
    text = rng.choice(texts)
    changes = (_by_line, _by_token, *(_by_kind,) * 5, *(_without_attribute,) * 2, *(_with_other_value,) * 3)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(changes)(rng, text)
    return text


def _by_line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[a]
        case 1:
            lines.insert(b, lines[a])
        case 2:
            lines[a], lines[b] = lines[b], lines[a]
        case _:
            del lines[min(a, b) : max(a, b)]
    return "\n".join(lines)


def _by_token(rng: random.Random, text: str) -> str:
    tokens = _TOKEN.findall(text)
    solid = [i for i, t in enumerate(tokens) if not t.isspace()]
    at, other = rng.choice(solid), tokens[rng.choice(solid)]
    tokens[at] = rng.choice(("", f"{tokens[at]} {tokens[at]}", other, rng.choice(_WORDS)))
    return "".join(tokens)


def _by_kind(rng: random.Random, text: str) -> str:
    """Replaces a number, string, symbol or SSA value by another of the same kind."""
    tokens = _TOKEN.findall(text)
    kinds = {i: k for i, t in enumerate(tokens) if (k := _kind(t))}
    kind = rng.choice(sorted(set(kinds.values())))
    those = [i for i, k in kinds.items() if k == kind]
    extremes = {"number": _NUMBERS, "text": _STRINGS}.get(kind, ())
    at = rng.choice(those)
    tokens[at] = rng.choice(extremes) if extremes and rng.random() < 0.5 else tokens[rng.choice(those)]
    return "".join(tokens)


def _kind(token: str) -> str:
    kinds = {'"': "text", "@": "symbol", "%": "value", "-": "number"}
    return "number" if token[0].isdigit() else kinds.get(token[0], "") if len(token) > 1 else ""


def _without_attribute(rng: random.Random, text: str) -> str:
    found = list(_ATTRIBUTE.finditer(text))
    match = rng.choice(found)
    return text[: match.start()] + text[match.end() :]


def _with_other_value(rng: random.Random, text: str) -> str:
    """Gives an attribute the value of another attribute; in 70% of cases one of the same name."""
    found = list(_ATTRIBUTE.finditer(text))
    match = rng.choice(found)
    same = [m for m in found if m["name"] == match["name"]] if rng.random() < 0.7 else found
    return text[: match.start("value")] + rng.choice(same)["value"] + text[match.end("value") :]


@dataclass(frozen=True)
class Broke:
    """A finding: a mutant that raised an uncoded error, hung, or crashed the worker."""

    seed: int
    how: str


def compile_on(text: str) -> str:
    """Compiles a dump to a plan; returns `compiled`, or the code of the error that refuses it."""
    from pathways.compiler.driver import Compilation, parse_program
    from pathways.compiler.passes.base import Session
    from pathways.dialect.diagnostics import PathwaysError
    from pathways.dialect.mlir import pretty
    from pathways.dialect.plan.check import validate
    from pathways.dialect.plan.check_modules import check_modules
    from pathways.dialect.plan.plan_file import read_plan, write_plan

    try:
        program = parse_program(text, "mutant")
        pretty(program.module)
        compilation = Compilation(program, {}, Session())
        compilation.advance()
        plan = read_plan(write_plan(compilation.plan()))
        validate(plan, "mutant")
        check_modules(plan, "mutant")
    except PathwaysError as error:
        str(error)
        return error.code
    return "compiled"


def work(first: int, count: int) -> None:
    """Runs in the worker: prints each mutant's seed before its compilation, and its outcome after."""

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    texts = corpus()
    for seed in range(first, first + count):
        print(f"try {seed}", flush=True)
        text = mutant(seed, texts)
        signal.alarm(SECONDS)
        try:
            print(f"end {seed} {compile_on(text)}", flush=True)
        except Exception:
            signal.alarm(0)
            print(f"bad {seed} {traceback.format_exc()!r}", flush=True)
        finally:
            signal.alarm(0)


def run(first: int, count: int) -> tuple[dict[str, int], list[Broke]]:
    """Runs the mutants in workers; returns the count of each outcome, and the findings."""
    ended: dict[str, int] = {}
    broke: list[Broke] = []
    at, end = first, first + count
    while at < end:
        done = run_python(__file__, "--worker", str(at), str(end - at), PYTHONFAULTHANDLER="1")
        for line in done.stdout.splitlines():
            word, seed, *rest = line.split(" ", 2)
            at = int(seed) + 1
            if word == "end":
                ended[rest[0]] = ended.get(rest[0], 0) + 1
            elif word == "bad":
                broke.append(Broke(int(seed), rest[0]))
        if done.returncode != 0:
            broke.append(Broke(at - 1, f"exit {done.returncode}: {done.stderr[-2000:]}"))
            if not done.stdout:
                break
    return ended, broke


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(int(sys.argv[2]), int(sys.argv[3]))
    else:
        found, bad = run(int(sys.argv[1]), int(sys.argv[2]))
        print(found)
        for one in bad:
            print(one.seed, one.how.replace("\\n", "\n"))
        sys.exit(bool(bad))
