"""A written file is complete or unchanged, also on a full disk and through links.

A cache reads only regular files of its own user.
"""

import ast
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.full_disk import full_disk
from support.processes import ROOT, load_file, pwc_here, run_python

import pathways as pw
from pathways.dialect.files import read_own, shared_with, write_private, write_whole
from pathways.dialect.jax_api import config
from pathways.dialect.mlir import make_context, parse
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables

SOURCE = """
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding as N, PartitionSpec as P
mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
table = np.arange(4096, dtype=np.float32)
f = jax.jit(lambda x: x + table, in_shardings=N(mesh, P("x")))
@pw.program(example_args=(np.zeros(4096, np.float32),))
def step(x):
    return f(x)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "model.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.fixture(scope="module")
def plan(source: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.bin"
    assert pwc_here("compile", source, "-o", str(path))[0] == 0
    return str(path)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(pw.PathwaysError) as caught:
        call()
    return caught.value.code


def test_a_full_disk_leaves_the_old_file_unchanged(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("as it was")
    with full_disk():
        assert refused(lambda: write_whole(old, b"x" * 4096)) == "PWC0606"
        assert refused(lambda: write_whole(new, b"x" * 4096)) == "PWC0606"
        assert refused(lambda: write_private(new, b"x" * 4096)) == "PWC0606"
    assert old.read_text() == "as it was" and os.listdir(tmp_path) == ["old"]


def test_python_can_import_what_it_imported_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "model.py").write_text("answer = 42")
    with full_disk(16):
        load_file(tmp_path / "model.py")
    assert load_file(tmp_path / "model.py").answer == 42


def test_a_full_disk_leaves_old_outputs_of_commands_unchanged(source: str, plan: str, tmp_path: Path) -> None:
    names = (
        "plan.bin",
        "ir.mlir",
        "mpmd.mlir",
        "table.csv",
        "out.npz",
        "trace.json",
        "state.npz",
        "dumps/01.trace.mlir",
    )
    (tmp_path / "dumps").mkdir()
    for name in names:
        (tmp_path / name).write_text("as it was")
    pipeline = str(ROOT / "samples" / "train_lm.py")
    for words in (
        ("compile", source, "-o", "plan.bin"),
        ("compile", source, "--compile-to", "place", "-o", "ir.mlir"),
        ("compile", source, "--emit", "mpmd", "-o", "m.mlir"),
        ("compile", source, "--dump-phases-to", "dumps"),
        ("compile", pipeline, "--schedule", "1f1b", "--emit-schedule", "table.csv"),
        ("run", plan, "--outputs", "out.npz"),
        ("run", plan, "--trace", "trace.json"),
    ):
        with full_disk(16):
            exit_code, _, stderr = pwc_here(*(str(tmp_path / w) if w in (*names, "dumps") else w for w in words))
        assert exit_code == 2 and "PWC0606" in stderr, (words, stderr)
    with full_disk():
        assert refused(lambda: pw.save(np.zeros(4096), tmp_path / "state.npz")) == "PWC0606"
    assert {name: (tmp_path / name).read_text() for name in names} == dict.fromkeys(names, "as it was")
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert {f for f in found if not f.startswith("dumps/constants/")} == set(names)


def test_a_failed_suspend_leaves_no_partial_files(tmp_path: Path) -> None:
    on = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    double = pw.program(jax.jit(lambda x: x * 2, in_shardings=on))
    with pw.Client("full") as client:
        kept = double(np.ones(4096, np.float32))
        kept.block_until_ready()
        with full_disk():
            assert refused(lambda: client.suspend(tmp_path)) == "PWC0606"
        assert not os.listdir(tmp_path)


def test_a_kill_leaves_the_old_file_unchanged(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("as it was")
    script = """
import os, sys
from pathways.dialect.files import write_whole
os.fsync = lambda descriptor: os.kill(os.getpid(), 9)
write_whole(sys.argv[1], b"x" * 4096)
"""
    assert run_python("-c", script, str(old)).returncode == -signal.SIGKILL
    assert old.read_text() == "as it was"


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("far/target")
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and os.listdir(tmp_path / "far") == ["target"]
    target.unlink()
    write_whole(link, "made")
    assert link.is_symlink() and target.read_text() == "made"
    (tmp_path / "round").symlink_to("round")
    assert refused(lambda: write_whole(tmp_path / "round", "x")) == "PWC0606"


def test_files_keep_their_mode_and_private_files_are_0600(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, new = tmp_path / "file", tmp_path / "new"
    path.write_text("old")
    path.chmod(0o640)
    before = os.umask(0o027)
    try:
        write_whole(path, "kept")
        write_whole(new, "new")
        write_private(tmp_path / "mine", b"mine")
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {"file": 0o640, "new": 0o640, "mine": 0o600}
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write every file, so simulate another user
    assert refused(lambda: write_whole(path, "x")) == "PWC0606" and path.read_text() == "kept"


def test_pipes_and_devices_are_written_in_place(source: str, tmp_path: Path) -> None:
    fifo, got = tmp_path / "fifo", list[bytes]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_whole(fifo, "through")
    reader.join()
    assert got == [b"through"] and stat.S_ISFIFO(fifo.stat().st_mode)
    with pytest.raises(pw.PathwaysError, match="free some space there"):
        write_whole("/dev/full", "x")
    assert refused(lambda: write_whole("/dev/full", "x")) == "PWC0606" and stat.S_ISCHR(os.stat("/dev/full").st_mode)
    assert refused(lambda: write_whole(tmp_path, "x")) == "PWC0606"
    script = "from pathways.dialect.files import write_whole; write_whole('/dev/stdout', 'to stdout')"
    assert run_python("-c", script).stdout == "to stdout"
    out = tmp_path / "out"
    with out.open("w") as file:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script], stdout=file, env=environment, check=True)
    assert out.read_text() == "to stdout" and sorted(os.listdir(tmp_path)) == ["fifo", "out"]


def test_run_reads_inputs_from_a_pipe_and_refuses_invalid_files(plan: str, tmp_path: Path) -> None:
    archive, fifo = tmp_path / "in.npz", tmp_path / "fifo"
    np.savez(archive, x=np.zeros(4096, np.float32))
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(archive.read_bytes()))
    writer.start()
    exit_code, stdout, stderr = pwc_here("run", plan, "--inputs", str(fifo))
    writer.join()
    assert exit_code == 0 and "out: float32[4096]" in stdout, stderr
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"PK\x03\x04 and no archive")
    for given in (f"@{archive}", f"@{broken}", f"@{tmp_path}", "@/dev/null"):
        exit_code, _, stderr = pwc_here("run", plan, "--input", f"x={given}")
        assert exit_code == 2 and "PWC0803" in stderr, given


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "keys" / "key"))
    monkeypatch.setenv("PATHWAYS_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"


MODULE = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


def load_and_count_compilations() -> int:
    """Loads one module through the cache, and returns how many modules were compiled."""
    executables = Executables()
    executables.load(str(parse(MODULE, make_context())), pjrt.make_devices(1))
    return executables.compiled


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if not p.is_dir()]


def test_a_cache_replaces_pipes_and_links_with_regular_files(cached: Path, tmp_path: Path) -> None:
    assert load_and_count_compilations() == 1 and load_and_count_compilations() == 0
    (entry,) = entries(cached)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600 and stat.S_IMODE(cached.stat().st_mode) == 0o700
    raw = entry.read_bytes()
    entry.unlink()
    os.mkfifo(entry)  # opening a pipe to read blocks forever without a writer
    assert load_and_count_compilations() == 1 and entry.is_file()
    victim = tmp_path / "victim"
    victim.write_bytes(raw)
    entry.unlink()
    entry.symlink_to(victim)
    assert read_own(entry) is None
    assert load_and_count_compilations() == 1 and not entry.is_symlink() and victim.read_bytes() == raw
    assert entries(cached) == [entry] and load_and_count_compilations() == 0


@pytest.mark.parametrize(
    ("named", "is_on", "place"),
    [
        (None, True, f"of-jax/pathways-{os.geteuid()}"),
        ("own", True, "own"),
        ("own", False, "own"),
        (None, False, ""),
        ("", True, ""),
    ],
)
def test_code_is_kept_in_the_cache_folder_of_jax_unless_another_is_named(
    named: str | None, is_on: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "keys" / "key"))
    monkeypatch.delenv("PATHWAYS_CACHE", raising=False)
    if named is not None:
        monkeypatch.setenv("PATHWAYS_CACHE", str(tmp_path / named) if named else "")
    before = config.jax_compilation_cache_dir, config.jax_enable_compilation_cache
    try:
        config.update("jax_compilation_cache_dir", str(tmp_path / "of-jax"))
        config.update("jax_enable_compilation_cache", is_on)
        assert load_and_count_compilations() == 1
        assert load_and_count_compilations() == (0 if place else 1)
    finally:
        config.update("jax_compilation_cache_dir", before[0])
        config.update("jax_enable_compilation_cache", before[1])
    found = {path.relative_to(tmp_path).as_posix() for path in entries(tmp_path)} - {"keys/key"}
    assert len(found) == bool(place) and all(path.startswith(f"{place}/") for path in found)


def test_a_cache_that_others_can_write_is_not_used(cached: Path) -> None:
    cached.mkdir(mode=0o700)
    cached.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="PWC0708"):
        assert load_and_count_compilations() == 1
    assert not entries(cached)
    cached.chmod(0o755)
    assert shared_with(cached) is None and load_and_count_compilations() == 1 and entries(cached)


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    assert read_own(path) == b"mine" and read_own(tmp_path) is None and read_own(tmp_path / "none") is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert read_own(path) is None
    if os.getuid() != 0:
        assert shared_with(tmp_path) is not None


@pytest.mark.parametrize(
    ("mode", "is_own_group", "problem"),
    [
        (0o755, False, None),
        (0o775, True, None),
        (0o775, False, "group 1 may write to it (mode 775)"),
        (0o757, True, "every user may write to it (mode 757)"),
    ],
)
def test_a_folder_is_shared_if_its_group_or_all_users_may_write(
    mode: int, is_own_group: bool, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(st_uid=0, st_gid=0 if is_own_group else 1, st_mode=stat.S_IFDIR | mode)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda _: status)
        found = shared_with(tmp_path)
    assert found == problem


WRITING_NAMES = frozenset(
    [
        "write_text",
        "write_bytes",
        "tofile",
        "savez",
        "savez_compressed",
        "save",
        "mkstemp",
        "TemporaryFile",
        "NamedTemporaryFile",
        "copyfile",
        "copy2",
        "replace",
        "rename",
        "O_CREAT",
        "O_WRONLY",
        "O_RDWR",
    ]
)
ALLOWED_WRITES = {
    "dialect/array_files.py": {"open"},  # TensorStore writes into a folder that no file names yet
    "dialect/signing.py": {"O_CREAT", "O_WRONLY"},  # an existing key is never replaced
    "dialect/plan/modules/vetting_process.py": {"O_WRONLY"},  # os.devnull replaces the child's standard output
    "dialect/plan/modules/vet.py": {"TemporaryFile"},  # unnamed files for the child's request and reply
    "cli/run.py": {"savez"},  # inside `whole_file`
    "pathways/api/snapshots.py": {"savez"},  # inside `whole_file`
    "runtime/host/timed/ports.py": {"open"},  # times that the hosts of a cluster share, in its own folder
    "runtime/launch/spawn.py": {"open"},  # the log that a spawned process writes
}
"""How modules other than dialect/files.py write files. Each comment says why that is allowed."""


def writes(path: Path) -> set[str]:
    """Returns the names of calls and flags with which a module opens files for writing."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in WRITING_NAMES:
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr.startswith(("O_", "save")) and of not in ("os", "np"):
                continue
            if node.attr in ("replace", "rename") and of not in ("os", "shutil", "path", "target", "beside"):
                continue  # str.replace or dataclasses.replace
            found.add(node.attr)
        if isinstance(node, ast.Call) and not _reads(node):
            found.add("open")
    return found


def _reads(call: ast.Call) -> bool:
    """Tells whether a call opens no file, or opens a file only to read."""
    function = call.func
    if isinstance(function, ast.Name) and function.id == "open":
        mode = call.args[1:2]
    elif isinstance(function, ast.Attribute) and function.attr == "open":
        if isinstance(function.value, ast.Name) and function.value.id == "os":
            return True  # os.open is recognized by its flags
        mode = call.args[:1]
    else:
        return True
    modes = [*mode, *(k.value for k in call.keywords if k.arg == "mode")]
    return all(isinstance(m, ast.Constant) and not set(str(m.value)) & set("wax+") for m in modes)


def test_only_the_listed_modules_open_files_for_writing() -> None:
    folders = ("dialect", "compiler", "runtime", "cli", "pathways/api")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    found = {str(p.relative_to(ROOT)): writes(p) for p in sources}
    assert len(found) > 100 and found.pop("dialect/files.py") >= {"open", "O_CREAT"}
    assert {name: how for name, how in found.items() if how} == ALLOWED_WRITES
