"""Plans and dumps name the user's files relative to the program. Messages still show the full paths."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT, pwc, pwc_here, run_python

from pathways.dialect.mlir import make_context, parse, text
from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.sources import Sources

MODEL = """
import flax.linen as nn, jax, jax.numpy as jnp, numpy as np, pathways as pw
from jax.sharding import NamedSharding as N, PartitionSpec as P
from lib.layers import layer, on
w = np.ones((4, 4), np.float32)
big = np.arange(4096, dtype=np.float32)
s, t = (pw.make_virtual_device_set().add_slice(devices=2) for _ in range(2))
f = jax.jit(lambda x: layer(x, w) + nn.softmax(x), in_shardings=on(s))
g = jax.jit(lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x) + big[:4], in_shardings=on(t))
@pw.program(example_args=(np.ones((4, 4), np.float32),))
def step(x):
    return g(f(f(x)) + 1)
"""
LAYERS = """
import jax.numpy as jnp
from common import twice
from jax.sharding import NamedSharding, PartitionSpec
def on(slice):
    return NamedSharding(slice.mesh("x"), PartitionSpec("x"))
def layer(x, w):
    return twice(jnp.tanh(x @ w))
"""
ABSOLUTE = re.compile(rb"[\x00-\x20\"'(:](/[\w.-]+){2,}")


def project(folder: Path) -> Path:
    """Writes a model with a package, and a module in another folder."""
    (folder / "proj" / "lib").mkdir(parents=True)
    (folder / "proj" / "lib" / "__init__.py").touch()
    (folder / "proj" / "lib" / "layers.py").write_text(LAYERS)
    (folder / "proj" / "model.py").write_text(MODEL)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "common.py").write_text("def twice(x):\n    return x + x\n")
    return folder / "proj" / "model.py"


def compiled(model: Path, *options: str, cwd: Path | None = None) -> tuple[bytes, dict[str, bytes]]:
    out = model.parent.parent / "out"
    path = os.pathsep.join((str(ROOT), str(model.parent.parent / "elsewhere")))
    source = str(model) if cwd is None else os.path.relpath(model, cwd)
    before = os.getcwd()
    os.chdir(cwd or before)
    try:
        words = ("compile", source, "-o", str(out / "plan.bin"), "--dump-phases-to", str(out / "dumps"), *options)
        out.mkdir(exist_ok=True)
        done = pwc(*words, PYTHONPATH=path)
    finally:
        os.chdir(before)
    assert done.returncode == 0, done.stderr
    dumps = {p.name: p.read_bytes() for p in (out / "dumps").glob("*.mlir")}
    return (out / "plan.bin").read_bytes(), dumps


@pytest.fixture(scope="module")
def two_builds(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, dict[str, bytes]]]:
    """Compiles the same project in two folders, by an absolute and by a relative path."""
    first, second = (project(tmp_path_factory.mktemp(name)) for name in ("first", "second"))
    return [compiled(first, "--with-phases"), compiled(second, "--with-phases", cwd=second.parent)]


def test_equal_programs_give_equal_plans_and_dumps_in_any_folder(
    two_builds: list[tuple[bytes, dict[str, bytes]]],
) -> None:
    assert two_builds[0] == two_builds[1]


def test_plans_and_dumps_have_no_absolute_paths(two_builds: list[tuple[bytes, dict[str, bytes]]]) -> None:
    plan, dumps = two_builds[0]
    assert len(dumps) == 6
    for raw in (plan, *dumps.values()):
        assert not ABSOLUTE.search(raw), ABSOLUTE.search(raw)
        for word in (b"site-packages", b"click", b"flax", b"/pwc", b"compiler/", str(ROOT).encode()):
            assert word not in raw, word
    for file in (b"model.py", b"lib/layers.py", b"elsewhere/common.py"):
        assert file in plan and all(file in dump for dump in dumps.values())


def test_a_dump_compiles_to_the_same_plan_as_its_source(
    two_builds: list[tuple[bytes, dict[str, bytes]]], tmp_path: Path
) -> None:
    model = project(tmp_path / "third")
    plan, _ = compiled(model)
    dumps = model.parent.parent / "out" / "dumps"
    again = tmp_path / "again.bin"
    assert pwc_here("compile", str(dumps / "01.trace.mlir"), "-o", str(again))[0] == 0
    assert again.read_bytes() == plan


def test_inspect_and_why_show_source_lines_of_a_plan(
    two_builds: list[tuple[bytes, dict[str, bytes]]], tmp_path: Path
) -> None:
    path = tmp_path / "plan.bin"
    path.write_bytes(two_builds[0][0])
    assert {w.file for d in load_plan(path).decisions if (w := d.where) is not None} == {"model.py"}
    assert "model.py:12" in pwc_here("inspect", str(path), "--all")[1]
    rows = json.loads(pwc_here("inspect", str(path), "--json")[1])
    assert rows["decisions"][0]["where"].keys() == {"file", "line", "function"}
    for line in ("model.py:12", "/some/where/proj/model.py:12", "proj/model.py:12"):
        assert "call lambda" in pwc_here("why", str(path), line)[1]
    assert pwc_here("why", str(path), "other_model.py:12")[0] == 2


def test_errors_show_the_full_path_and_the_source_line(tmp_path: Path) -> None:
    model = project(tmp_path)
    model.write_text(MODEL.replace("add_slice(devices=2)", 'add_slice(devices=2, kind="none")'))
    words = ("compile", str(model), "--topology", "islands=1,devices=4")
    environment = os.pathsep.join((str(ROOT), str(tmp_path / "elsewhere")))
    done = pwc(*words, "--error-format", "json", PYTHONPATH=environment)
    where = json.loads(done.stderr.splitlines()[0])["errors"][0]["where"]
    assert where == {"file": str(model), "line": 7, "function": "<genexpr>"}
    shown = pwc(*words, PYTHONPATH=environment).stderr
    assert f"--> {model}:7" in shown and "7 | s, t = " in shown


def test_the_plan_of_a_script_stores_its_name_and_shows_its_full_path(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding as N, PartitionSpec as P
on = N(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
def fails(x):
    raise ValueError("mine")
f = jax.jit(lambda x: jax.pure_callback(fails, x, x), in_shardings=on)
program = pw.program(lambda x: f(x))
print([r.where.at for r in program.lower(np.ones(4, np.float32)).compile().plan.runs()][0])
print([r.where.file for r in program.lower(np.ones(4, np.float32)).compile().plan.runs()][0])
""")
    done = run_python(str(script))
    assert done.stdout.splitlines() == [f"{script}:8", "script.py"], done.stderr


def test_stored_names_of_files_are_relative_to_the_program(tmp_path: Path) -> None:
    for folder in ("a/pkg/inner", "a/.venv/lib/python3/site-packages/lib", "b/pkg/inner", "c"):
        (tmp_path / folder).mkdir(parents=True)
    for package in ("a/pkg", "a/pkg/inner", "b/pkg", "b/pkg/inner"):
        (tmp_path / package / "__init__.py").touch()
    at = str(tmp_path)

    def names(program: str, *files: str) -> list[str | None]:
        sources = Sources(f"{at}/{program}")
        found = [sources.stored(f if f.startswith(("<", "/")) else f"{at}/{f}") for f in files]
        assert [sources.here(n) for n in found if n and not n.startswith("<")] == [
            f if f.startswith("/") else f"{at}/{f}" for f, n in zip(files, found, strict=True) if n and n[0] != "<"
        ]
        return found

    assert names("a/model.py", "a/model.py", "a/pkg/inner/x.py", "b/pkg/y.py", "c/z.py") == [
        "model.py", "pkg/inner/x.py", "pkg/y.py", "c/z.py"
    ]  # fmt: skip
    assert names("a/pkg/inner/x.py", "a/pkg/inner/x.py", "a/pkg/w.py", "a/model.py") == [
        "pkg/inner/x.py", "pkg/w.py", "model.py"
    ]  # fmt: skip
    assert names("a/m.py", "a/pkg/x.py", "b/pkg/x.py") == [
        "pkg/x.py",
        "b/pkg/x.py",
    ]  # both files would be named pkg/x.py
    library = "a/.venv/lib/python3/site-packages/lib/f.py"
    assert names("a/m.py", library, os.__file__, "<string>") == [None, None, "<string>"]
    assert names(library, library, "a/.venv/lib/python3/site-packages/lib/g.py") == ["f.py", "g.py"]
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    (tmp_path / "link").symlink_to("moved")
    assert Sources(f"{at}/link/model.py").stored(f"{at}/moved/pkg/x.py") == "pkg/x.py"
    assert Sources().stored(f"{at}/a/model.py") == "a/model.py"


def test_all_forms_of_locations_are_rewritten() -> None:
    from pathways.dialect.rewrite_locations import rewrite_locations

    def rewritten(location: str) -> str:
        module = parse(f"module {{}} loc({location})", make_context())
        rewrite_locations(module.operation, lambda file: None if file == "lib.py" else f"x/{file}")
        return text(module)

    assert 'loc("x/a.py":1:2 to :3)' in rewritten('"a.py":1:2 to :3')
    assert "unknown" in rewritten("unknown") and "unknown" in rewritten('"lib.py":1:1')
    assert 'loc("op")' in rewritten('"op"(callsite("lib.py":1:1 at "f"("lib.py":2:2)))')
    kept = rewritten('"op"(callsite("lib.py":1:1 at callsite("f"("a.py":2:2) at "lib.py":3:3)))')
    assert '"x/a.py":2:2' in kept and "lib.py" not in kept and "callsite" not in kept
    stack = rewritten('callsite("f"("a.py":1:1) at callsite("b.py":2:2 at callsite("lib.py":3:3 at "g"("c.py":4:4))))')
    assert re.findall(r'x/(\w).py":(\d)', stack) == [("a", "1"), ("b", "2"), ("c", "4")]
    assert '"x/a.py":1:1' in rewritten('fused["a.py":1:1, "lib.py":2:2]')
    assert np.all([rewritten(f'"a"("b"("c.py":{n}:1))').count("x/c.py") == 1 for n in (1, 2)])
