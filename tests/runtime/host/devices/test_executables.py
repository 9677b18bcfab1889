"""Tests compiled executables in plans and in a cache folder. Only this machine and this user load them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import pwc_here

import pathways as pw
from pathways.dialect import mlir, signing
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.plan_file import load_plan, write_plan
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.host.devices import executable_cache, pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.poison import Poison

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "keys" / "key"))


def compiled() -> Any:
    made = pw.make_virtual_device_set()
    first, second = (NamedSharding(made.add_slice(devices=n).mesh("x"), P("x")) for n in (4, 2))
    f, g = jit(lambda x: x + 1, in_shardings=first), jit(lambda x: (x * 2).sum(), in_shardings=second)
    return pw.program(lambda x: g(f(x))).lower(X).compile()


def load(plan: Any, folder: Path | None = None) -> tuple[LoadedPlan, Executables]:
    """Loads the plan with its own controller, machine and executables, much like a new process."""
    controller = Controller(Machine("cpu"), executables=Executables(folder))
    controller.executables.offer(plan.executables)
    return LoadedPlan(plan, controller), controller.executables


def value(loaded: LoadedPlan) -> float:
    (handle,) = loaded.run([X])
    found = handle.array()
    assert not isinstance(found, Poison), found.error()
    return float(np.asarray(found))


def test_a_plan_saved_with_executables_needs_no_compilation(tmp_path: Path) -> None:
    program, path = compiled(), tmp_path / "plan.bin"
    plain = write_plan(program.plan)
    assert program.save(path, executables=True) > len(plain)
    plan = load_plan(path)
    assert plan == program.plan and plan.executables
    loaded, made = load(plan)
    assert made.compiled == 0 and value(loaded) == 72
    without, made = load(program.plan)
    assert made.compiled > 0 and value(without) == 72


def test_executables_signed_by_another_user_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, path = compiled(), tmp_path / "plan.bin"
    program.save(path, executables=True)
    monkeypatch.setenv("PATHWAYS_KEY", str(tmp_path / "other" / "key"))
    loaded, made = load(load_plan(path))
    assert made.compiled > 0 and value(loaded) == 72


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("_host_code", lambda: "another machine"),
        ("_OPTIONS", "others"),
        ("jaxlib.version.__version__", "0.0.1"),
        ("_flags", lambda: "--xla_cpu_enable_fast_math=true"),
    ],
)
def test_executables_from_another_environment_are_compiled_again(
    what: str, other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers another machine, other options and another version of XLA; in a plan and in a cache folder."""
    program, path, folder = compiled(), tmp_path / "plan.bin", tmp_path / "cache"
    program.save(path, executables=True)
    _, first = load(program.plan, folder)
    assert first.compiled > 0 and load(load_plan(path))[1].compiled == load(program.plan, folder)[1].compiled == 0
    monkeypatch.setattr(f"{executable_cache.__name__}.{what}", other)
    for plan, cache in ((load_plan(path), None), (program.plan, folder)):
        loaded, made = load(plan, cache)
        assert made.compiled == first.compiled and value(loaded) == 72


def test_flags_of_xla_that_change_code_are_part_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = pjrt.make_devices(1)

    def name(xla: str, tpu: str = "") -> str:
        monkeypatch.setenv("XLA_FLAGS", xla)
        monkeypatch.setenv("LIBTPU_INIT_ARGS", tpu)
        return executable_cache.fingerprint(device)

    same = ["", "--xla_force_host_platform_device_count=8", "--xla_dump_to=here"]
    assert len({name(flags) for flags in same}) == 1 and name("--a --b") == name("--b  --a")
    assert len({name(""), name("--a"), name("--a=1"), name("", "--a=2")}) == 4


def test_a_cache_folder_is_reused_and_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    plan, folder = compiled().plan, tmp_path / "cache"
    _, made = load(plan, folder)
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert made.compiled == len(files) > 0
    loaded, made = load(plan, folder)
    assert made.compiled == 0 and value(loaded) == 72
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    loaded, made = load(plan, folder)
    assert made.compiled == len(files) and value(loaded) == 72


def at_line(line: int, factor: int = 2) -> Any:
    """Compiles the same program from source text at another line."""
    text = "\n" * line + f"def f(x):\n    return (x * {factor} + 1).sum()"
    exec(compile(text, "model.py", "exec"), names := dict[str, Any]())
    mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    placed = jit(names["f"], in_shardings=NamedSharding(mesh, P()))
    return pw.program(lambda x: placed(x)).lower(X).compile().plan


def test_lines_above_a_computation_do_not_matter_to_ready_code(tmp_path: Path) -> None:
    plan, later, other = at_line(0), at_line(7), at_line(7, factor=3)
    assert plan.computations[0].module != later.computations[0].module
    _, made = load(plan, tmp_path)
    assert made.compiled == 1
    loaded, made = load(later, tmp_path)
    assert made.compiled == 0 and value(loaded) == (X * 2 + 1).sum()
    loaded, made = load(other, tmp_path)
    assert made.compiled == 1 and value(loaded) == (X * 3 + 1).sum()


def test_modules_are_read_in_few_contexts_by_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [at_line(n, n).computations[0].module for n in range(4)]
    want = [mlir.without_locations(module) for module in modules]
    assert len(set(want)) == 4
    made: list[Any] = []
    context = mlir.make_context
    monkeypatch.setattr(mlir, "make_context", lambda: made.append(1) or context())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(mlir.without_locations, modules * (mlir.MODULES_PER_CONTEXT // 2)))
    assert found == want * (mlir.MODULES_PER_CONTEXT // 2) and 2 <= len(made) <= 3


def test_a_signature_opens_only_its_own_name_and_content() -> None:
    signed = signing.sign("name", b"code")
    assert signing.opened("name", signed) == b"code"
    assert signing.opened("other", signed) is None and signing.opened("name", signed[:-1]) is None
    assert signing.opened("name", b"") is None


def test_pwc_saves_inspects_and_runs_executables_with_a_fetch_limit(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    code, _, stderr = pwc_here(
        "compile", str(root / "samples" / "mixture_of_experts.py"), "-o", str(path), "--with-executables"
    )
    assert code == 0, stderr
    code, stdout, stderr = pwc_here("inspect", str(path), "--json")
    assert code == 0 and json.loads(stdout)["executables"], stderr
    for dispatch in ("parallel", "sequential"):
        code, stdout, stderr = pwc_here("run", str(path), "--dispatch", dispatch, "--fetch-limit", "1MiB")
        assert code == 0 and "time:" in stdout and "compiled again" not in stderr
    code, _, stderr = pwc_here("run", str(path), "--fetch-limit", "1B")
    assert code == 5 and "PWC0516" in stderr
    code, _, stderr = pwc_here("run", str(path), "--fetch-limit", "much")
    assert code == 2 and "PWC0707" in stderr


def test_doctor_reports_six_passed_checks() -> None:
    code, stdout, stderr = pwc_here("doctor")
    assert code == 0, stdout + stderr
    assert stdout.count("ok ") == 6 and "two slices of 2" in stdout and "platform   cpu: tested on" in stdout


def test_idle_executables_above_the_limit_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable_cache, "MAX_IDLE", 1)
    plan = compiled().plan
    loaded, code = load(plan)
    again, _ = load(plan)
    assert code.compiled >= 2 and code.kept == 1
    for ready in (loaded, again):
        (result,) = ready.run([X])
        assert float(np.asarray(result.buffer.array)) == float(((X + 1) * 2).sum())
    code.forget()
    assert code.kept == 0


def test_modules_are_compiled_and_deserialized_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier needs two threads to compile modules, and to deserialize copies, at once; one thread would time out."""
    meet = threading.Barrier(2, timeout=60)
    for name in ("compile_module", "deserialize"):
        real = getattr(pjrt, name)
        monkeypatch.setattr(pjrt, name, lambda *args, real=real: (meet.wait(), real(*args))[1])
    monkeypatch.setattr(executable_cache.os, "cpu_count", lambda: 2)
    first, second = pjrt.make_devices(2)
    modules = [
        f"func.func public @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{ return %x : tensor<{n}xf32> }}"
        for n in (4, 8)
    ]
    made = Executables()
    owner = "f", None
    made.load_all({(m, (d,)): owner for m in modules for d in (first, second)})
    assert made.compiled == 2 and made.kept == 4 and not meet.n_waiting
    assert made.load(modules[0], [second]) is made.load(modules[0], [second])
    with pytest.raises(PathwaysError, match=r"PWC0614.*XLA cannot compile f"):
        bad = modules[1].replace("return", "give"), modules[0].replace("main", "f")
        made.load_all({(m, (first,)): owner for m in bad})
    assert made.compiled == 2 and made.kept == 4


def test_the_oldest_executables_are_freed_first() -> None:
    made, (device,) = Executables(), pjrt.make_devices(1)
    modules = [
        f"func.func public @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{ return %x : tensor<{n}xf32> }}"
        for n in (4, 8, 16)
    ]
    code = [made.load(module, [device]) for module in modules]
    made.forget(2)
    assert made.kept == 2 and made.compiled == 3
    assert [made.load(module, [device]) is old for module, old in zip(modules, code, strict=True)] == [
        False,
        True,
        True,
    ]
    assert made.compiled == 4
