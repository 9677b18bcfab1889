"""Tests that jaxlib's Shardy accepts emitted text: its verifier, its lowering to IFRT IR, and its parser."""

import shlex
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.emitting import scheduled
from support.processes import load_file, pwc_here

import pathways as pw
from pathways.compiler.emit import ifrt
from pathways.compiler.emit.ifrt import mpmd_module
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import Operation, make_context, parse, pretty
from pathways.dialect.phases import Phase
from pathways.dialect.shardy_mpmd import lower_to_ifrt, register

GOLDEN = Path(__file__).parents[2] / "golden" / "emit"
SAMPLES = {
    "figure2": ("figure2.py", "program"),
    "training, 1f1b": ("train_lm.py", "1f1b"),
    "training, gpipe": ("train_lm.py", "gpipe"),
    "unequal meshes": ("mixture_of_experts.py", "program"),
    "a conv net": ("finetune_vision.py", "program"),
    "a library's model": ("pipeline_any_model.py", "zero-bubble"),
}
jit: Any = jax.jit


def operations(module: Any) -> list[Operation]:
    """Returns the operations of @main."""
    (main,) = (o for o in module.body.operations if _symbol(o.operation) == "main")
    return [o.operation for o in main.regions[0].blocks[0].operations]


def _symbol(op: Operation) -> str:
    return op.attributes["sym_name"].value


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("figure2", "unequal meshes"))
@pytest.mark.parametrize(("sample", "schedule"), SAMPLES.values(), ids=SAMPLES)
def test_shardy_accepts_emitted_samples(root: Path, tmp_path: Path, sample: str, schedule: str) -> None:
    """Lowering the parsed MPMD text gives the emitted IFRT text, with one ifrt.Call for each call."""
    texts: dict[str, str] = {}
    for form in ("mpmd", "ifrt"):
        path = tmp_path / form
        chosen = ["--schedule", schedule, "--emit", form, "-o", str(path)]
        code, stdout, stderr = pwc_here("compile", str(root / "samples" / sample), *chosen)
        assert (code, stdout) == (0, ""), stderr
        texts[form] = path.read_text()
    context = make_context()
    register(context)
    module = parse(texts["mpmd"], context)
    names = [op.name for op in operations(module)]
    assert set(names) == {"mpmd.fragment_call", "mpmd.transfer", "func.return"}
    lower_to_ifrt(module)
    again = parse(texts["ifrt"], context)
    assert again.operation.verify()
    assert again.operation.get_asm() == module.operation.get_asm()
    assert [op.name for op in operations(again)].count("ifrt.Call") == names.count("mpmd.fragment_call") > 3


def test_the_emitted_text_of_a_small_program_equals_the_golden_file() -> None:
    """Compares line by line without locations, then checks the locations of three names."""
    first, _, expected = (GOLDEN / "small.mpmd.mlir").read_text().partition("\n")
    arguments = shlex.split(first.removeprefix("// RUN: pwc "))
    code, stdout, stderr = pwc_here(*[str(GOLDEN / a) if a.endswith(".mlir") else a for a in arguments])
    assert code == 0, stderr
    context = make_context()
    register(context)
    assert pretty(parse(stdout, context)) == expected
    for name in ("xs[0]", "xs[1]", "total"):
        assert f'loc("{name}")' in stdout


def test_emitted_calls_of_pipelines_state_their_actions(root: Path) -> None:
    """Functions are named as in Shardy, transposed computations are marked, and merged calls list their actions."""
    sample = load_file(root / "samples" / "train_lm.py")
    compilation = scheduled(sample.train_step.lower(*sample.example_args()), "zero-bubble")
    flow, program = compilation.program.flow, compilation.program
    expected = [n.op.action for n in flow.calls()]
    module = mpmd_module(program, compilation.constants)
    calls = [op for op in operations(module) if op.name == "mpmd.fragment_call" and len(op.operands)]
    assert len(calls) == len(expected)
    kinds: set[str] = set()
    for op, action in zip(calls, expected, strict=True):
        actions = [a.value for a in op.attributes["actions"]] if "actions" in op.attributes else []
        assert len(actions) in (0, len(op.attributes["origin"]))
        if action:
            assert {*actions} - {"-"} == {action}
            stage, kind = action[0], {"F": "fwd", "I": "bwd_input", "W": "bwd_weights", "B": "bwd"}[action[1]]
            assert f"_stage{stage}_{kind}_call" in op.attributes["callee"].value
            assert ("(1)" in str(op.attributes["origin"])) == (kind != "fwd")
            kinds.add(kind)
    assert {"fwd", "bwd_input", "bwd_weights"} <= kinds


def emit_refusal(program: Any, *arguments: Any) -> PathwaysError:
    with pytest.raises(PathwaysError) as caught:
        scheduled(program.lower(*arguments)).emit("mpmd")
    return caught.value


X = np.ones((4, 4), np.float32)


def test_data_dependent_control_flow_is_refused(root: Path) -> None:
    code, _, stderr = pwc_here("compile", str(root / "samples" / "speculative_decoding.py"), "--emit", "mpmd")
    assert code == 3
    assert "PWC0127" in stderr and "speculative_decoding.py:" in stderr and "pw.while" in stderr


def test_host_callbacks_are_refused() -> None:
    device = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")

    def shown(x: Any) -> Any:
        jax.debug.callback(print, x)
        return x + 1

    call = jit(shown, in_shardings=NamedSharding(device, P()))
    error = emit_refusal(pw.program(lambda x: call(x)), X)
    assert error.code == "PWC0127" and "a host callback" in str(error)
    assert error.diagnostic.where is not None and error.diagnostic.where.at.startswith(__file__)


@pytest.mark.parametrize(
    ("other", "message"), [((2, 3), "split in incompatible ways"), ("part", "they share some devices")]
)
def test_incompatible_meshes_over_shared_devices_are_refused(other: Any, message: str) -> None:
    part = pw.make_virtual_device_set().add_slice(devices=6)
    whole = part.mesh(("a", "b"), (3, 2))
    grid = np.array(part.devices)
    second = jax.sharding.Mesh(grid[:2], ("c",)) if other == "part" else part.mesh(("c", "d"), other)
    f, g = (jit(lambda x, n=n: x + n, in_shardings=NamedSharding(m, P())) for n, m in enumerate((whole, second)))
    error = emit_refusal(pw.program(lambda x: (f(x), g(x))), X)
    assert error.code == "PWC0127" and message in str(error)


def test_a_program_without_computations_is_refused() -> None:
    error = emit_refusal(pw.program(lambda x: ()), X)
    assert error.code == "PWC0127" and "without computations" in str(error)


def test_only_scheduled_programs_are_emitted() -> None:
    device = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    call = jit(lambda x: x + 1, in_shardings=NamedSharding(device, P()))
    compilation = scheduled(pw.program(lambda x: call(x)).lower(X))
    compilation.advance(Phase.PLAN)
    with pytest.raises(PathwaysError, match="PWC0703"):
        compilation.emit("mpmd")


def test_text_that_shardy_refuses_is_reported_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    device = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    call = jit(lambda x: x + 1, in_shardings=NamedSharding(device, P()))
    compilation = scheduled(pw.program(lambda x: call(x)).lower(X))
    right = ifrt.mpmd_text
    monkeypatch.setattr(ifrt, "mpmd_text", lambda *given: right(*given).replace('<mesh="m0"', '<mesh="m7"'))
    with pytest.raises(PathwaysError, match="PWC0126") as caught:
        compilation.emit("mpmd")
    assert "m7" in str(caught.value)


@pytest.mark.parametrize("option", [["--compile-to", "place"], ["--with-phases"], ["--with-executables"]])
def test_options_of_plans_are_refused_with_emit(root: Path, option: list[str]) -> None:
    code, _, stderr = pwc_here("compile", str(root / "samples" / "figure2.py"), "--emit", "mpmd", *option)
    assert code == 2 and "--emit writes no plan" in stderr


def test_a_dump_after_phase_schedule_is_refused(root: Path, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    assert pwc_here("compile", str(root / "samples" / "figure2.py"), "--dump-phases-to", str(dumps))[0] == 0
    code, _, stderr = pwc_here("compile", str(dumps / "06.plan.mlir"), "--emit", "ifrt")
    assert code == 2 and "PWC0801" in stderr and "--emit ifrt" in stderr
    code, stdout, _ = pwc_here("compile", str(dumps / "05.schedule.mlir"), "--emit", "ifrt")
    assert code == 0 and stdout.count("ifrt.Call ") == 4
