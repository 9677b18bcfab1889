"""Leaves long tests out of `make test`, and reports how many and why.

`@pytest.mark.long(reason)` marks a test that runs with `--all` alone, which is what `make test-all` passes;
`keep` names the parameters, as patterns of `fnmatch`, that `make test` runs as well. The fixture `thorough` says which
of the two it is, for tests that choose how many random examples they try.
"""

import collections
from fnmatch import fnmatchcase
from typing import Any

import pytest

from support import passed

OPTION = "--all"
_MARKER = "long(reason, keep=()): runs with --all alone, but for the parameters that `keep` names by patterns"
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
LONGEST_FILES = (
    *("test_ray_cluster.py", "test_samples.py", "test_pipeline_models.py", "test_hostile_clients.py"),
    *("test_cluster_soak.py", "test_models.py", "test_notebooks.py", "test_fuzz_plans.py", "test_fault_matrix.py"),
)
"""Files that take 40 s or more with --all, some with few tests. If one ran last, the other process would be idle."""


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="also runs what is marked as long, and more random examples")
    parser.addoption("--record", action="store_true", help="records which tests have passed with which files")
    parser.addoption("--rest", action="store_true", help="leaves out the tests that are recorded as passed")


def is_thorough(config: pytest.Config) -> bool:
    """Whether all tests run, with many random examples."""
    return bool(config.getoption(OPTION))


def configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.stash[_LEFT_OUT] = {}


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests that are marked as long, or recorded, and counts them by reason."""
    known = passed.recorded() if config.getoption("--rest") else frozenset[str]()
    if is_thorough(config) and not known:
        return
    reasons = [_reason_not_to_repeat(item, known) or _reason_to_leave_out(item, config) for item in items]
    left_out = [item for item, reason in zip(items, reasons, strict=True) if reason]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]
        config.stash[_LEFT_OUT] = dict(collections.Counter(filter(None, reasons)))


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Orders files so that the processes finish at about the same time: the longest, then those with many tests."""
    counts = collections.Counter(item.path for item in items)
    rank = {name: number for number, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: (rank.get(item.path.name, len(rank)), -counts[item.path], str(item.path)))


def _reason_to_leave_out(item: pytest.Item, config: pytest.Config) -> str:
    for mark in () if is_thorough(config) else item.iter_markers("long"):
        (reason,) = mark.args
        parameters = item.name.partition("[")[2].removesuffix("]")
        if not any(fnmatchcase(parameters, pattern) for pattern in mark.kwargs.get("keep", ())):
            return str(reason)
    return ""


def _reason_not_to_repeat(item: pytest.Item, known: frozenset[str]) -> str:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return "passed in `make test` of the same files" if item.nodeid in known and "thorough" not in fixtures else ""


def record_passed(config: pytest.Config, before: str) -> None:
    """Records the tests of a whole run that have passed, if the files are those of the digest `before` the run."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    is_whole = config.args == config.getini("testpaths") and not config.getoption("-k")
    if config.getoption("--record") and reporter is not None and is_whole and passed.digest() == before:
        passed.record({report.nodeid for report in reporter.stats.get("passed", ()) if report.when == "call"}, before)


def send_to_controller(config: pytest.Config) -> None:
    """Passes the counts from a process of pytest-xdist to the one that prints the summary."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = config.stash[_LEFT_OUT]


def receive_from_worker(config: pytest.Config, output: dict[str, Any]) -> None:
    config.stash[_LEFT_OUT] = output.get("left_out", {})


def print_left_out(reporter: Any, config: pytest.Config) -> None:
    """Prints how many tests were left out, by reason."""
    counts = config.stash[_LEFT_OUT]
    if counts:
        rest = "" if is_thorough(config) else " that `make test-all` runs"
        reporter.section(f"left out: {sum(counts.values())} tests{rest}")
        for reason, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
            reporter.line(f"{count:5} {reason}")
