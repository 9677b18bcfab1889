"""Options and fixtures for all tests. Collectives that hang end soon, so that a broken test cannot stall the run."""

import contextlib
import gc
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # code of an earlier run would hide that a test compiles
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_cpu_collective_call_warn_stuck_timeout_seconds=30"
    + " --xla_cpu_collective_call_terminate_timeout_seconds=60"
)
# Tests compile much and compute little: XLA takes 0.4 of the time if it does not optimize. Only in versions that are
# known to have both flags, since XLA ends a process that has an unknown one.
if version("jaxlib").startswith("0.10.") and not os.environ.get("PATHWAYS_TESTS_OPTIMIZED"):
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
sys.path.insert(0, str(Path(__file__).parent))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # under nohup, say: tests interrupt processes that they start
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
import pytest
from hypothesis import settings
from support import cores, encoded, forked_python, left_behind, passed, tiers
from support.encoded import encoded_process
from support.fuzz_plans import base_plans

from pathways.api.process import inside_of, process
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.observe.stacks import stacks

# The same examples everywhere, however slow the machine is; `--hypothesis-profile=default` looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

ROOT = Path(__file__).parent.parent
MAX_MAPS = 8_000
"""Memory maps of a test process at which it drops compiled code: at about 1.5 GB."""
_LEFT = pytest.StashKey[list[str]]()
"""What a run has left, on the machine and in its processes."""
_FILES = pytest.StashKey[str]()
"""The digest of the files before the run."""
_BEFORE = pytest.StashKey[tuple[float, left_behind.Machine, left_behind.Inside]]()

os.environ.setdefault(left_behind.RUN, str(os.getpid()))
cores.allow()
forked_python.install()
TEMPORARY = left_behind.TemporaryFolder.begin()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)
    parser.addoption("--update-golden", action="store_true", help="write what golden tests print")
    parser.addoption("--encoded", action="store_true", help="runs are messages, written and read as between processes")
    parser.addoption("--may-leave", action="store_true", help="does not look for what the tests leave behind")
    parser.addoption("--programs", type=int, help="how many random programs are compared: 10, with --all 40")
    parser.addoption("--first-program", type=int, default=0, help="the seed of the first random program")


def pytest_configure(config: pytest.Config) -> None:
    tiers.configure(config)
    if config.option.programs is None:
        config.option.programs = 40 if tiers.is_thorough(config) else 10


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    config.stash[_LEFT] = []
    config.stash[_FILES] = (
        passed.digest() if config.getoption("--record") and not hasattr(config, "workeroutput") else ""
    )
    config.stash[_BEFORE] = time.time(), left_behind.Machine.now(), left_behind.Inside.now()


def pytest_collection_finish() -> None:
    """Excludes imported objects from later garbage collections, of which there is at least one per file."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # the processes of pytest-xdist have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that left anything behind. Each process checks itself; the first one also checks the machine."""
    config = session.config
    _, machine, inside = config.stash[_BEFORE]
    forked_python.stop()
    tiers.send_to_controller(config)
    if config.getoption("--may-leave"):
        TEMPORARY.end()
        if (ended := getattr(config, "workeroutput", None)) is not None:
            ended["left"] = []
        return
    left = left_behind.settled(lambda: [*left_behind.Inside.now().left_since(inside), *TEMPORARY.left()])
    if any(line.startswith("thread: ") for line in left):
        left.append(stacks())
    TEMPORARY.end()
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["left"] = left
        return
    config.stash[_LEFT] += left + left_behind.settled(lambda: left_behind.Machine.now().left_since(machine))
    if config.stash[_LEFT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if session.exitstatus == pytest.ExitCode.OK:
        tiers.record_passed(config, config.stash[_FILES])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    if "left_out" in output:
        tiers.receive_from_worker(node.config, output)
    node.config.stash[_LEFT] += output.get("left", [f"{node.gateway.id} ended before it was checked"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    begun, _, _ = config.stash[_BEFORE]
    cores.print_backtraces(terminalreporter, begun, Path.cwd())
    tiers.print_left_out(terminalreporter, config)
    if config.stash[_LEFT]:
        terminalreporter.section("left behind by the tests")
        for line in config.stash[_LEFT]:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether tests try many random examples: under --all."""
    return tiers.is_thorough(request.config)


@pytest.fixture(autouse=True, scope="session")
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """What runs plans: this process, or a host in it that is told by messages."""
    with contextlib.ExitStack() as stack:
        if request.config.getoption("--encoded"):
            stack.enter_context(inside_of(encoded_process(process().platform)))
            left_behind.expect([f"thread: {name}" for name in encoded.THREADS])
            left_behind.expect([f"descriptor: {name}" for name in encoded.DESCRIPTORS])
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.leave_out_long(config, items)
    tiers.put_long_files_first(items)
    if config.getoption("--encoded"):
        for item in items:
            if item.get_closest_marker("embedded") is not None:
                item.add_marker(pytest.mark.skip("it looks into devices and threads of this process"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Leaves out, under the engine of messages, what hosts refuse by a code of its own."""
    try:
        return (yield)
    except Exception as error:
        refused = re.search(r"\[PWC0912\]: ([^\n]*)", str(error))
        if item.config.getoption("--encoded") and refused is not None:
            pytest.skip(f"hosts refuse it: {refused[1]}")
        raise


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def moe_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan.bin of a sample, with its dumps inside."""
    from support.processes import pwc

    path = tmp_path_factory.mktemp("plans") / "moe.bin"
    done = pwc("compile", str(ROOT / "samples" / "mixture_of_experts.py"), "-o", str(path), "--with-phases")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def plans() -> list[Plan]:
    """Small plans of every kind: a pipeline on three islands, and on one; moves; devices alone; loops and branches."""
    return base_plans()


@pytest.fixture
def pipe(plans: list[Plan]) -> Plan:
    """A pipeline on three islands, with donation, transfers and merged calls."""
    return plans[0]


@pytest.fixture
def freed_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts give large blocks back when they free them: glibc keeps them else, and how many is a matter of chance."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")


@pytest.fixture(autouse=True, scope="module")
def _compiled_code_goes() -> Iterator[None]:
    """Drops compiled code before it takes much memory. A process may have 65,530 memory maps; code takes two each.

    Until then the files of tests share it, since many of them call the same small functions of JAX. What a file leaves
    behind is excluded from later garbage collections.
    """
    yield
    if Path("/proc/self/maps").read_bytes().count(b"\n") > MAX_MAPS:
        gc.unfreeze()
        process().controller.executables.forget()
        jax.clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _all_devices_are_back() -> Iterator[None]:
    """What a test lost, it does not lose for others."""
    yield
    machine = process().machine
    for island in machine.islands:
        for position in list(island.lost):
            machine.recover(island, position)
