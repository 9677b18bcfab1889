"""Measures what the tests notice: makes small mistakes in the code, one at a time, and counts those that no test sees.

    python bench/mutants.py record                 runs all tests once, noting which lines each runs, and its time
    python bench/mutants.py record tests/NEW.py    adds the tests of this file to the record
    python bench/mutants.py run --count 1000       makes 1,000 mutants at random and runs the tests of each
    python bench/mutants.py run --only FILE:NUMBER one mutant again, with what pytest prints
    python bench/mutants.py run --again FILE --budget 120 --output OTHER
                                                   those that survived in FILE again, with more of their tests
    python bench/mutants.py table                  survivors by folder

The tests that run the line of a mutant (bench/code_changes.py) are tried, quickest first, until one fails: those of
`make test`, then those that only `make test-all` has. A mutant that the tests within the budget do not see counts as
surviving.
"""

import collections
import json
import random
from pathlib import Path
from typing import Any

import click
from code_changes import ROOT, Functions, Mutant, mutants_of
from covering_tests import BUDGET_S, RECORD, Records
from covering_tests import record as record_tests
from tests_of_mutants import Runner, load_everything

FOLDERS = ("compiler", "dialect", "runtime")
OUTCOMES = RECORD / "outcomes.jsonl"


@click.group(help=__doc__)
def main() -> None:
    """Measures what the tests notice."""


@main.command()
@click.argument("files", nargs=-1)
def record(files: tuple[str, ...]) -> None:
    """Runs all tests once, with coverage by test; or only FILES, which it adds to the record."""
    record_tests((*FOLDERS, "pathways", "cli", "viz"), files)


@main.command()
@click.option("--count", default=1000, help="how many mutants")
@click.option("--seed", default=0)
@click.option("--only", default="", help="FILE:NUMBER, one mutant")
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="outcomes; judges their survivors")
@click.option("--budget", default=BUDGET_S, help="seconds of tests for one line")
@click.option("--part", default="0/1", help="I/N: every Nth mutant, from the Ith")
@click.option("--output", type=click.Path(path_type=Path), default=OUTCOMES)
def run(count: int, seed: int, only: str, again: Path | None, budget: float, part: str, output: Path) -> None:
    """Makes mutants and runs their tests."""
    records = Records.read()
    load_everything()
    index, parts = map(int, part.split("/"))
    runner = Runner(Functions.loaded(), records.seconds, output.with_suffix(f".{index}.log"))
    if only:
        file, _, number = only.rpartition(":")
        outcome = judge(mutants_of(file)[int(number)], records, runner, budget)
        print(runner.log.read_text())
        print(outcome)
        return
    done = {(o["mutant"][0], o["mutant"][1]) for o in outcomes_in(output)}
    if again and again.resolve() == output.resolve():
        raise click.UsageError("--again needs another --output than the file that it reads")
    drawn = _survivors(again) if again else _drawn(count, seed)
    for mutant in sorted(drawn[index::parts], key=lambda m: m.file):  # the record is read file by file
        if (mutant.file, mutant.number) not in done:
            outcome = judge(mutant, records, runner, budget)
            with output.open("a") as file:
                file.write(json.dumps(outcome) + "\n")


def _drawn(count: int, seed: int) -> list[Mutant]:
    """Draws mutants of all files, each equally likely."""
    files = [str(p.relative_to(ROOT)) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
    everything = [m for file in files for m in mutants_of(file)]
    return random.Random(seed).sample(everything, min(count, len(everything)))


def _survivors(path: Path) -> list[Mutant]:
    """Lists the mutants that no test of a file of outcomes saw, as the code stands now."""
    return [mutants_of(o["mutant"][0])[o["mutant"][1]] for o in outcomes_in(path) if _survives(o) == [True, True]]


def _survives(outcome: dict[str, Any]) -> list[bool]:
    """Whether a mutant survived `make test`, and whether those that only `make test-all` has."""
    return [not outcome.get(stage, ["killed"])[0].startswith("killed") for stage in ("test", "test-all")]


def judge(mutant: Mutant, records: Records, runner: Runner, budget: float) -> dict[str, Any]:
    """Runs the tests of a mutant: those of `make test`, then those that only `make test-all` has."""
    outcome: dict[str, Any] = {"mutant": [mutant.file, mutant.number, mutant.line, mutant.what]}
    for stage, long in (("test", False), ("test-all", True)):
        tests = records.tests_of(mutant.file, mutant.line, budget, long=long)
        came, seconds = runner.judge(tests, mutant)
        outcome[stage] = [came, round(seconds, 1), len(tests)]
        if came.startswith("killed"):
            break
    return outcome


def outcomes_in(path: Path) -> list[dict[str, Any]]:
    """Reads the outcomes of the mutants so far; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@main.command()
@click.option("--output", type=click.Path(path_type=Path), default=OUTCOMES)
def table(output: Path) -> None:
    """Prints survivors by folder: of `make test`, and of `make test-all`."""
    rows: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for outcome in outcomes_in(output):
        survives = _survives(outcome)
        for name in (str(Path(outcome["mutant"][0]).parent), "all"):
            rows[name] = [a + b for a, b in zip(rows[name], (1, survives[0], all(survives)), strict=True)]
    print(f"{'':40} {'mutants':>8} {'survive test':>14} {'survive test-all':>18}")
    for name, (count, quick, everything) in sorted(rows.items()):
        print(f"{name:40} {count:8} {quick:6} {quick / count:7.1%} {everything:10} {everything / count:7.1%}")


if __name__ == "__main__":
    main()
