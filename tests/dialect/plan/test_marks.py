"""Plans with the mark of this user are read in this process. All others are vetted in a separate process first."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from support.fuzz_modules import X, honest, module_of, run_all, text_of
from support.proc import open_files_of

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.modules import vet
from pathways.dialect.plan.modules.vet import Limits, vetted
from pathways.dialect.plan.plan_file import load_plan, read_plan, save_plan, write_plan


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "key"
    monkeypatch.setenv("PATHWAYS_KEY", str(path))
    return path


def test_marked_plans_are_read_in_this_process(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.bin"
    save_plan(honest(), path)
    monkeypatch.setattr(vet, "_run", lambda *_: pytest.fail("another process was started"))
    plan = load_plan(path)
    assert (
        plan == honest()
        and plan.marked
        and any(c.local for c in plan.computations) == any(c.local for c in honest().computations)
    )


def test_equal_plans_of_one_user_have_equal_bytes(key: Path) -> None:
    first, again = (write_plan(honest(), marked=True) for _ in range(2))
    plain = write_plan(honest())
    assert first == again != plain and len(first) == len(plain) and read_plan(first) == read_plan(plain)
    key.unlink()
    assert write_plan(honest(), marked=True) != first and write_plan(honest()) == plain
    dumps = {"01.trace.mlir": b"", "02.shard.mlir": b"module {}"}
    ordered, reverse = (replace(honest(), phases=dict(rows)) for rows in (dumps.items(), [*dumps.items()][::-1]))
    assert ordered == reverse and write_plan(ordered) == write_plan(reverse)


def unmarked_files(folder: Path, key: Path) -> list[Path]:
    """Writes one plan with another user's mark, without a mark, with broken marks, and in the format before marks."""
    raw = write_plan(honest(), marked=True)
    key.unlink()
    from pathways.dialect.plan import plan_file as p

    end = len(raw) - p._SEAL_SIZE  # pyright: ignore[reportPrivateUsage]
    start = end - p._MARK_SIZE  # pyright: ignore[reportPrivateUsage]
    seal = p._SEAL  # pyright: ignore[reportPrivateUsage]

    def sealed(body: bytes) -> bytes:
        import hashlib

        return body + seal + hashlib.sha256(body).hexdigest().encode()

    size = len(raw) - start
    assert raw[start - 2 : start] == size.to_bytes(2, "little")  # length of the zip comment
    old = raw[: start - 2] + p._SEAL_SIZE.to_bytes(2, "little")  # pyright: ignore[reportPrivateUsage]
    broken = raw[: end - 1] + (b"0" if raw[end - 1 : end] != b"0" else b"1")
    nonsense = raw[: end - 4] + b"zzzz"
    files: list[Path] = []
    for name, data in {
        "other": raw,
        "none": write_plan(honest()),
        "broken": sealed(broken),
        "nonsense": sealed(nonsense),
        "old": sealed(old),
    }.items():
        files.append(folder / f"{name}.bin")
        files[-1].write_bytes(data)
    return files


def test_unmarked_plans_are_vetted_and_run(key: Path, tmp_path: Path) -> None:
    save_plan(honest(), tmp_path / "mine.bin")
    wanted = pw.load(tmp_path / "mine.bin")(X, X, X[0])
    files = unmarked_files(tmp_path, key)
    for path in files:
        plan = load_plan(path)
        assert plan == replace(honest(), computations=plan.computations) and not plan.marked, path
        assert not any(c.local for c in plan.computations)
    for ours, others in zip(wanted, pw.load(files[-1])(X, X, X[0]), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(others))


def test_saving_a_loaded_plan_marks_it(key: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.bin").write_bytes(write_plan(honest()))
    pw.load(tmp_path / "theirs.bin").save(tmp_path / "mine.bin")
    assert load_plan(tmp_path / "mine.bin").marked


def test_modules_for_one_device_are_derived_from_the_whole_module(key: Path, tmp_path: Path) -> None:
    made = pw.make_virtual_device_set().add_slice(devices=2).tpus
    import jax

    double = jax.pmap(lambda x: x * 2.0, devices=made)
    plan = pw.program(lambda v: double(v)).lower(np.ones(2, np.float32)).compile().plan
    (computation,) = plan.computations
    source = text_of(computation.local)
    assert "2.000000e+00" in source
    tripled = replace(computation, local=module_of(source.replace("2.000000e+00", "3.000000e+00")))
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(replace(plan, computations=(tripled,))))
    compiled = pw.load(path)
    assert compiled.plan == plan  # the derived module equals the compiler's, byte for byte
    np.testing.assert_array_equal(np.asarray(compiled(np.ones(2, np.float32))), [2.0, 2.0])


def test_the_vetting_process_refuses_invalid_dumps(tmp_path: Path) -> None:
    deep = b"module {" * 20_000 + b"}" * 20_000
    for dump in (deep, b"nonsense", b"\xff\xfe"):
        plan = replace(honest(), phases={"05.schedule.mlir": dump})
        with pytest.raises(PathwaysError, match=r"the dump 05\.schedule\.mlir") as caught:
            vetted(plan, "plan.bin")
        assert caught.value.code in ("PWC0604", "PWC0609")


# --- the vetting process


def test_the_vetting_process_starts_without_jax() -> None:
    source = vet._START.replace("answer()", "print([m for m in sys.modules if m == 'jax' or m.startswith('jax.')])")  # pyright: ignore[reportPrivateUsage]
    import jaxlib
    import ml_dtypes

    folders = [str(Path(str(m.__file__)).parent.parent) for m in (jaxlib, np, ml_dtypes)]
    package = str(Path(str(pw.__file__)).parent)
    command = [sys.executable, "-I", "-S", "-c", source, package, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.long("a process uses up its time: 2 s", keep=("[ob]*",))
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("os._exit(7)", "exit code 7"),
        ("os._exit(0)", "exit code 0"),
        ("[None for _ in iter(int, 1)]", "CPU time"),
        ("bytearray(1 << 40)", "exit code 1"),
        ("os.write(answers.fileno(), b'[1]')", "exit code 0"),
    ],
)
def test_a_plan_that_crashes_the_vetting_process_is_refused(
    does: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaces the reader by code that fails as hostile bytes could make it fail."""
    start = f"""
import os
from pathways.dialect.plan.modules import vetting_process as child
private = child._private_answers
def kept():
    global answers
    answers = private()
    return answers
child._private_answers = kept
def read(*_):
    {does}
    os._exit(0)
child._read = read
answer()
"""
    monkeypatch.setattr(vet, "_START", vet._START.replace("answer()\n", start))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(PathwaysError, match=said) as caught:
        vetted(honest(), "plan.bin", Limits(seconds=2, memory=vet.MAX_VET_MEMORY_BYTES))
    assert caught.value.code == "PWC0609" and honest().computations[0].name in str(caught.value)


def test_a_vetting_process_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(PathwaysError, match="No such file") as caught:
        vetted(honest(), "plan.bin")
    assert caught.value.code == "PWC0612"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PathwaysError, match="exit code 1") as caught:
        vetted(honest(), "plan.bin")
    assert caught.value.code == "PWC0612"
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho Traceback >&2\necho 'No module of this name' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(PathwaysError, match="exit code 3: No module of this name"):
        vetted(honest(), "plan.bin")


def test_the_vetting_process_reads_this_package_and_leaves_no_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def refuse(command: list[str], **_: object) -> None:
        started.append(command)
        raise OSError("no memory for another process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = open_files_of()
    with pytest.raises(PathwaysError, match="no memory for another process") as caught:
        vetted(honest(), "plan.bin")
    assert caught.value.code == "PWC0612" and not Counter(open_files_of()) - Counter(before)
    ((*_, package, _),) = (command[: command.index("-c") + 4] for command in started)
    assert package == str(Path(str(pw.__file__)).parent)


def test_unsafe_and_damaged_keys_are_refused(key: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    save_plan(honest(), path)
    assert key.stat().st_mode & 0o777 == 0o600 and [p.name for p in key.parent.iterdir()] == ["key"]

    def refused(problem: str) -> None:
        with pytest.raises(PathwaysError, match=problem) as caught:
            load_plan(path)
        assert caught.value.code == "PWC0610"

    key.chmod(0o640)
    refused("0640")
    key.chmod(0o600)
    key.rename(key.with_name("real"))
    key.symlink_to("real")
    refused("symbolic link")
    key.unlink()
    os.mkfifo(key)
    refused("not a regular file")
    key.unlink()
    key.write_bytes(b"short")
    key.chmod(0o600)
    refused("5 bytes")
    key.unlink()
    key.mkdir()
    refused("not a regular file")


def test_plans_are_saved_unmarked_if_no_key_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "file" / "key"))
    path = tmp_path / "plan.bin"
    save_plan(honest(), path)
    assert path.read_bytes() == write_plan(honest()) and not load_plan(path).marked


def test_a_loaded_plan_calls_lapack_in_another_process(tmp_path: Path) -> None:
    """JAX registers LAPACK when it lowers a call. A process that only runs the plan must register LAPACK itself."""
    solve = pw.program(lambda a: (jnp.linalg.inv(a), jnp.linalg.eigh(a)))
    solve.lower(np.eye(8, dtype=np.float32)).compile().save(tmp_path / "marked.bin", executables=True)
    (tmp_path / "unmarked.bin").write_bytes(write_plan(load_plan(tmp_path / "marked.bin")))
    code, said = run_all([tmp_path / "marked.bin", tmp_path / "unmarked.bin"])
    assert code == 0 and "Error" not in said, said
