"""Tests which modules of Shardy's dialect are read, and which are refused with which code."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.shardy_programs import recorded

import pathways as pw
from pathways.cli.main import main
from pathways.compiler.driver import parse_program
from pathways.compiler.frontends.mpmd.actions import Actions

MODULE = """
module {{
  sdy.mesh @mesh = <["x"=2]>
  {extra}
  func.func public @main(%arg0: {type} {given}) -> ({made}) attributes {{topology = #mpmd.topology<{meshes}>}} {{
    {body}
  }}
}}
"""
TYPE = '!mpmd.mesh_tensor<"m0", tensor<8xf32>>'
DOUBLING_BODY = """%0 = mpmd.fragment<mesh="m0", origin=["f"]> (%arg0) (%x: tensor<8xf32>) {{
      %y = {op} : tensor<8xf32>
      mpmd.return %y : tensor<8xf32>
    }} : ({type}) -> {type}
    return %0 : {type}"""


def module(
    type_: str = TYPE,
    op: str = "stablehlo.add %x, %x",
    body: str = "",
    extra: str = "",
    given: str = "",
    meshes: str = '<"m0" : <["x"=2]>>',
) -> str:
    inside = body or DOUBLING_BODY.format(op=op, type=type_)
    return MODULE.format(type=type_, body=inside, extra=extra, given=given, meshes=meshes, made=type_)


def run(text: str) -> np.ndarray:
    x = np.arange(8, dtype=np.float32)
    return np.asarray(pw.from_mpmd(text).compile()(x)[0])


def test_the_smallest_program_runs() -> None:
    np.testing.assert_array_equal(run(module()), np.arange(8, dtype=np.float32) * 2)


def test_functions_that_a_fragment_calls_are_imported_with_it() -> None:
    helpers = """
  func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = func.call @once(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %z = stablehlo.add %y, %y : tensor<8xf32>
    return %z : tensor<8xf32>
  }
  func.func private @once(%x: tensor<8xf32>) -> tensor<8xf32> { return %x : tensor<8xf32> }"""
    text = module(op="func.call @twice(%x) : (tensor<8xf32>) -> tensor<8xf32> //", extra=helpers)
    np.testing.assert_array_equal(run(text.replace(" //", "\n//")), np.arange(8, dtype=np.float32) * 2)


def test_the_sharding_of_an_argument_is_kept() -> None:
    stated = module(given='{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}')
    compiled = pw.from_mpmd(stated).compile()
    assert compiled.plan.streams[0].buffers[0].layout.dims == (("x",),)
    assert pw.from_mpmd(module()).compile().plan.streams[0].buffers[0].layout.dims == ((),)


@pytest.mark.filterwarnings("ignore:.*pinned_host:UserWarning")
def test_values_in_host_memory_raise_a_warning() -> None:
    with pytest.warns(UserWarning, match="pinned_host stay in device memory"):
        pw.from_mpmd(recorded()["t_pinned_host"].modules["partition"])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("module {}", "PWC0120"),
        (module(meshes=""), "PWC0702"),
        (module(type_="tensor<8xf32>", body="return %arg0 : tensor<8xf32>"), "PWC0121"),
        (module(type_='!mpmd.mesh_tensor<"m1", tensor<8xf32>>'), "PWC0702"),
        (module(given='{sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}]>}').replace('"x"=2', '"x"=4'), "PWC0122"),
        (module(op="stablehlo.nothing %x, %x"), "PWC0702"),
        ("what is this", "PWC0702"),
    ],
)
def test_invalid_modules_are_refused(text: str, code: str) -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        pw.from_mpmd(text)
    assert caught.value.code == code


def test_partitioned_programs_keep_their_order_and_refuse_a_schedule() -> None:
    lowered = pw.from_mpmd(recorded()["s2_unused_nodonate"].modules["partition"])
    with pytest.raises(pw.PathwaysError, match=r"PWC0404(.|\n)*trace"):
        lowered.compile(schedule="1f1b")
    again = parse_program(lowered.as_text(debug_info=True), "a dump")
    assert again.ordered and "find-pipeline" not in again.module.operation.attributes


def test_actions_are_read_from_names_of_functions() -> None:
    actions = Actions()
    assert [actions.of_callee("p2_stage1_bwd_calls1to3.step") for _ in range(4)] == [
        ("stage1_bwd", "1B1"),
        ("stage1_bwd", "1B2"),
        ("stage1_bwd", "1B3"),
        ("stage1_bwd", None),
    ]
    assert actions.of_callee("p0_a._lambda") == ("a", None)
    assert actions.of_callee("p12_inferred.main") == ("inferred", None)


def test_pwc_commands_accept_mpmd_files(tmp_path: Path) -> None:
    program = recorded()["t_plain"]
    source, plan = tmp_path / "plain.mpmd.mlir", tmp_path / "plan.bin"
    source.write_text(program.modules["partition"])
    np.savez(tmp_path / "in.npz", **{f"arg{i}": x for i, x in enumerate(program.arguments)})
    pwc = CliRunner()
    done = pwc.invoke(main, ["compile", str(source), "-o", str(plan)])
    assert done.exit_code == 0 and "program  plain for cpu: 2 inputs, 1 results" in done.output, done.output
    done = pwc.invoke(main, ["opt", str(source)])
    assert done.exit_code == 0 and "pw.call" in done.output
    done = pwc.invoke(
        main, ["run", str(plan), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "o.npz")]
    )
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["result"], program.results[0], rtol=1e-5)
    source.write_text(recorded()["t_pinned_host"].modules["import"])
    assert "note: values of memory kind pinned_host" in pwc.invoke(main, ["compile", str(source)]).output
