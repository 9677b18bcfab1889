"""Dumps that are deep, edited or hostile compile further or are refused with an error code."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fuzz_dumps import corpus, run
from support.processes import pwc, pwc_here

from pathways.compiler.driver import CONSTANTS_FOLDER, parse_program
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import make_context, parse_text
from pathways.dialect.text_depth import DEEPEST_TEXT, check_nesting

MUTANTS, FEW_MUTANTS = 200, 60
"""Counts of mutants, whose seeds start at 0. To try more: `python tests/support/fuzz_dumps.py 0 10000`."""


def test_mutants_compile_or_are_refused(thorough: bool) -> None:
    mutants = MUTANTS if thorough else FEW_MUTANTS
    ended, broke = run(0, mutants)
    assert not broke, broke[0].how
    assert sum(ended.values()) == mutants and {"compiled", "PWC0701", "PWC0702"} <= ended.keys()


def test_golden_dumps_cover_every_phase() -> None:
    from pathways.dialect.phases import Phase

    assert {parse_program(text, "a dump").phase for text in corpus()} == set(Phase)


def aliases(count: int, of: str) -> str:
    """Returns a module with a chain of aliases: each refers to the previous alias, in the form `of`."""
    lines = ["#a0 = [1 : i64]", *(f"#a{i} = {of.format(f'#a{i - 1}')}" for i in range(1, count))]
    return "\n".join([*lines, f"module attributes {{a = #a{count - 1}}} {{}}"])


DEEP: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: f"module attributes {{pw.a = {'[' * n}{']' * n}}} {{}}",
    "types": lambda n: f"module attributes {{pw.a = {'tuple<' * n}f32{'>' * n}}} {{}}",
    "regions": lambda n: '"a.b"() ({\n' * n + '}) : () -> ()\n' * n,
    "dense": lambda n: f"module attributes {{pw.a = dense<{'[' * n}1{']' * n}> : tensor<1xi32>}} {{}}",
    "stacks": lambda n: "module {} loc(" + 'callsite("a":1:1 at ' * n + '"b":1:1' + ")" * n + ")",
    "sums": lambda n: f"module attributes {{pw.a = affine_map<(d0) -> ({' + '.join(['d0'] * n)})>}} {{}}",
    "signs": lambda n: f"module attributes {{pw.a = affine_map<(d0) -> ({'-' * n}d0)>}} {{}}",
    "quotients": lambda n: f"module attributes {{pw.a = affine_map<(d0) -> (d0{' floordiv 2' * n})>}} {{}}",
    "aliases": lambda n: aliases(n, "[{0}]"),
    "types by alias": lambda n: "\n".join(("!a0 = f32", *(f"!a{i} = tuple<!a{i - 1}>" for i in range(1, n)))),
    "lines by alias": lambda n: '#loc0 = loc("x":1:1)\n'
    + "".join(f'#loc{i} = loc("x"(#loc{i - 1}))\n' for i in range(1, n))
    + f"module {{}} loc(#loc{n - 1})",
}  # fmt: skip


@pytest.mark.parametrize("kind", DEEP)
def test_text_that_is_nested_too_deep_is_refused(kind: str) -> None:
    for count in (DEEPEST_TEXT + 1, 30_000):
        with pytest.raises(PathwaysError, match="PWC0709"):
            parse_text(DEEP[kind](count), "deep")
    check_nesting(DEEP[kind](DEEPEST_TEXT // 4), "not so deep")


def test_aliases_that_expand_exponentially_are_refused() -> None:
    with pytest.raises(PathwaysError, match="PWC0709"):
        check_nesting(aliases(60, "[{0}, {0}]"), "2^60")
    many = "\n".join(f'"a.b"() {{a = #a{9}}} : () -> ()' for _ in range(5000))
    with pytest.raises(PathwaysError, match="PWC0709"):
        check_nesting(aliases(10, "[{0}, {0}, {0}]").replace("module", f"{many}\nmodule"), "3^10, 5000 times")


def test_brackets_in_strings_and_comments_are_not_counted() -> None:
    brackets = "[" * 1000
    check_nesting(f'module attributes {{a = "{brackets}\\22{brackets}"}} {{}} // {brackets}', "text")
    check_nesting("module attributes {a = " + ", b = ".join(["(i32) -> i32"] * 1000) + "} {}", "arrows")
    check_nesting("module attributes {a = affine_set<(d0) : (d0 >= 0)>} {" * 50 + "}" * 50, "comparisons")
    hidden = 'module attributes {a = affine_set<(d0) : (d0 >= 0)>} {"a.b"() ({\n'
    with pytest.raises(PathwaysError, match="PWC0709"):
        check_nesting(hidden * DEEPEST_TEXT, "comparisons do not close regions")


@pytest.mark.long("every command reads a deep dump: 8 s")
def test_every_command_refuses_a_deep_dump(tmp_path: Path, moe_plan: Path) -> None:
    deep = tmp_path / "deep.mlir"
    deep.write_text(DEEP["regions"](5000))
    for words in (("opt",), ("compile",), ("check",)):
        done = pwc(*words, str(deep))
        assert done.returncode == 3 and "PWC0709" in done.stderr and f"--> {deep}:" in done.stderr, words
    from dataclasses import replace

    from pathways.dialect.plan.plan_file import load_plan, save_plan

    plan = load_plan(moe_plan)
    hostile = tmp_path / "hostile.bin"
    save_plan(replace(plan, phases={name: deep.read_bytes() for name in plan.phases}), hostile)
    assert pwc("diff", str(hostile), str(moe_plan), "--ir", "plan").returncode == 3


def test_a_huge_range_of_devices_gives_a_short_error() -> None:
    dumps = [t for t in corpus() if 'devices = "0:2"' in t and 'device_ids = "0:2"' in t]
    for text, key in itertools.product(dumps[:2], ("devices", "device_ids")):
        with pytest.raises(PathwaysError) as caught:
            parse_program(text.replace(f'{key} = "0:2"', f'{key} = "0:1048576"'), "a dump")
        assert caught.value.code == "PWC0701" and len(caught.value.diagnostics) <= 4 and len(str(caught.value)) < 9000


def test_a_dump_reads_only_unchanged_constants_of_its_folder(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text("""
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding as N, PartitionSpec as P
mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
big = np.arange(4096, dtype=np.float32)
f = jax.jit(lambda x: x + big, in_shardings=N(mesh, P("x")))
@pw.program(example_args=(np.zeros(4096, np.float32),))
def step(x):
    return f(x)
""")
    dumps = tmp_path / "dumps"
    assert pwc_here("compile", str(source), "--dump-phases-to", str(dumps))[0] == 0
    (constant,) = (dumps / CONSTANTS_FOLDER).iterdir()
    trace = dumps / "01.trace.mlir"
    assert pwc_here("compile", str(trace))[0] == 0
    secret = tmp_path / "secret"
    secret.write_bytes(constant.read_bytes())
    text = trace.read_text()
    trace.write_text(text.replace(f'"{constant.name}"', '"../../secret"'))
    exit_code, _, stderr = pwc_here("compile", str(trace))
    assert exit_code == 3 and "PWC0701" in stderr
    trace.write_text(text)
    constant.write_bytes(constant.read_bytes()[:-4])
    exit_code, _, stderr = pwc_here("compile", str(trace))
    assert exit_code == 2 and "PWC0104" in stderr and "do not match its name" in stderr


def test_strings_with_invalid_utf8_or_nul_are_refused() -> None:
    for text in ('module attributes {pw.phase = "\\FF"} {}', 'module attributes {a = "\\00"} {}'):
        with pytest.raises(PathwaysError, match="PWC0702"):
            parse_text(text, "bytes")
    assert (
        parse_text('module attributes {pw.a = "\\C3\\BC \\\\FF"} {}', "ü").operation.attributes["pw.a"].value
        == "ü \\FF"
    )


def test_contexts_start_no_threads() -> None:
    """A thread that reports an error waits for the GIL, while the parser holds the GIL and waits for the thread."""
    assert make_context().get_num_threads() <= 1
