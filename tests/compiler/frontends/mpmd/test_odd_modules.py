"""Tests unusual modules of Shardy's dialect: each gives the right values, or is refused with a code."""

import numpy as np
import pytest

import pathways as pw
from pathways.dialect.ir.bodies import functions_called_by
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.pw import TransferOp
from pathways.dialect.mlir import make_context, parse

X = np.arange(8, dtype=np.float32)
TYPE = '!mpmd.mesh_tensor<"m0", tensor<8xf32>>'
TWO_MESHES = '<"m0" : <["x"=2]>>, <"m1" : <["x"=2]>>'
ADD = "%y = stablehlo.add %x, %x : tensor<8xf32>"


def fragment(
    name: str, operand: str, of: str = TYPE, *, inside: str = ADD, stated: str = "", attributes: str = ""
) -> str:
    mesh = of.split('"')[1]
    head = f'{name} = mpmd.fragment<mesh="{mesh}", origin=["f"]{stated}> ({operand}) {attributes}'
    return f"{head} (%x: tensor<8xf32>) {{ {inside}\n mpmd.return %y : tensor<8xf32> }} : ({of}) -> {of}\n"


def module(
    body: str, *, types: tuple[str, ...] = (TYPE,), extra: str = "", meshes: str = TWO_MESHES, mesh: str = "@mesh"
) -> str:
    taken = ", ".join(f"%arg{i}: {t}" for i, t in enumerate(types))
    made = f"({', '.join(types)}) attributes {{topology = #mpmd.topology<{meshes}>}}"
    axes = f'sdy.mesh {mesh} = <["x"=2]>'
    return f"module {{ {axes}\n {extra}\n func.func public @main({taken}) -> {made} {{\n {body} }} }}"


def check_doubling(text: str) -> pw.Compiled:
    compiled = pw.from_mpmd(text).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X)[0]), X * 2)
    return compiled


def refusal_code(text: str) -> str:
    with pytest.raises(pw.PathwaysError) as caught:
        pw.from_mpmd(text)
    return caught.value.code


END = f"return %0 : {TYPE}"
SPLIT = '<@mesh, [{"x"}]>'


@pytest.mark.parametrize("stated", [f", in_shardings=[{SPLIT}]", f", out_shardings=[{SPLIT}]"])
def test_the_sharding_that_a_fragment_states_is_propagated(stated: str) -> None:
    compiled = check_doubling(module(fragment("%0", "%arg0", stated=stated) + END))
    assert {b.layout.dims for b in compiled.plan.streams[0].buffers} == {(("x",),)}


def test_a_fragment_may_state_an_open_sharding() -> None:
    check_doubling(module(fragment("%0", "%arg0", stated=", in_shardings=[<@mesh, [{?}]>]") + END))


def test_the_sharding_that_a_transfer_states_is_propagated() -> None:
    other = TYPE.replace("m0", "m1")
    move = f"%1 = mpmd.transfer {{sdy.sharding = #sdy.sharding_per_value<[{SPLIT}]>}} %0 : ({TYPE}) -> {other}\n"
    text = module(fragment("%0", "%arg0") + move + f"return %1 : {other}").replace(f"-> ({TYPE})", f"-> ({other})")
    for stream in check_doubling(text).plan.streams:
        assert {b.layout.dims for b in stream.buffers} == {(("x",),)}


@pytest.mark.filterwarnings("ignore:.*pinned_host:UserWarning")
@pytest.mark.parametrize(
    ("to", "moved"), [('"m0"', []), ('"m0", memory_kind="pinned_host"', []), ('"m1"', ["m1"])], ids=lambda v: str(v)
)
def test_a_transfer_moves_a_value_only_to_another_mesh(to: str, moved: list[str]) -> None:
    mesh, _, kind = to.partition(", ")
    other = f"!mpmd.mesh_tensor<{mesh}, tensor<8xf32>{kind and f', {kind}'}>"
    move = f"%1 = mpmd.transfer %0 : ({TYPE}) -> {other}\n"
    text = module(fragment("%0", "%arg0") + move + f"return %1 : {other}").replace(f"-> ({TYPE})", f"-> ({other})")
    program = ProgramIR(pw.from_mpmd(text).module)
    assert [op.mesh for op in program.nodes() if isinstance(op, TransferOp)] == moved


@pytest.mark.parametrize("symbol", ['@"my mesh"', '@"a>, [{}"', '@"a.b-c"', '@"gr\\C3\\BC"'])
def test_mesh_symbols_that_need_quotes_are_accepted(symbol: str) -> None:
    of = TYPE.replace(">>", f'>, sharding=<{symbol}, [{{"x"}}]>>')
    inside = f'%z = sdy.sharding_constraint %x <{symbol}, [{{"x"}}]> : tensor<8xf32>\n {ADD}'.replace(
        "%x, %x", "%z, %z"
    )
    text = module(fragment("%0", "%arg0", of, inside=inside) + f"return %0 : {of}", types=(of,), mesh=symbol)
    compiled = check_doubling(text)
    assert {b.layout.dims for b in compiled.plan.streams[0].buffers} == {(("x",),)}


@pytest.mark.parametrize("name", ["my mesh", "gr\\C3\\BC", ""])
def test_mesh_names_may_be_empty_or_have_spaces_or_non_ascii_characters(name: str) -> None:
    check_doubling(module(fragment("%0", "%arg0") + END).replace('"m0"', f'"{name}"'))


@pytest.mark.parametrize(
    "type_",
    ["8x!quant.uniform<i8:f32, 2.0>", "?xf32, #stablehlo.bounds<4>", '8xf32, "a"', "8xi3", "9223372036854775807xf32"],
)
def test_types_that_no_array_has_are_refused(type_: str) -> None:
    of = f'!mpmd.mesh_tensor<"m0", tensor<{type_}>>'
    assert refusal_code(module(f"return %arg0 : {of}", types=(of,))) == "PWC0122"


CALL = "%y = func.call @h(%x) : (tensor<8xf32>) -> tensor<8xf32>"
HELPER = "func.func private @h(%a: tensor<8xf32>) -> tensor<8xf32>"
AGAIN = CALL.replace("%y", "%b").replace("%x", "%a")


@pytest.mark.parametrize(
    "helper",
    [
        "func.func private @h(tensor<8xf32>) -> tensor<8xf32>",
        f"{HELPER} {{ {AGAIN}\n return %b : tensor<8xf32> }}",
        f"{HELPER} {{ cf.br ^b(%a : tensor<8xf32>)\n ^b(%q: tensor<8xf32>):\n return %q : tensor<8xf32> }}",
    ],
    ids=["no body", "calls itself", "branches"],
)
def test_helper_functions_that_would_crash_the_process_are_refused(helper: str) -> None:
    assert refusal_code(module(fragment("%0", "%arg0", inside=CALL) + END, extra=helper)) == "PWC0701"


def test_two_functions_that_call_each_other_are_refused() -> None:
    other = HELPER.replace("@h", "@i") + f" {{ {AGAIN}\n return %b : tensor<8xf32> }}"
    helper = HELPER + f" {{ {AGAIN.replace('@h', '@i')}\n return %b : tensor<8xf32> }}"
    text = module(fragment("%0", "%arg0", inside=CALL) + END, extra=f"{helper}\n{other}")
    assert refusal_code(text) == "PWC0701"
    functions = parse(f"module {{ {helper}\n{other} }}", make_context()).body.operations
    assert [functions_called_by(f.operation) for f in functions] == [["i"], ["h"]]


def test_branches_of_the_main_function_are_refused() -> None:
    jump = f"cf.br ^b(%arg0 : {TYPE})\n ^b(%q: {TYPE}):\n return %q : {TYPE}"
    assert refusal_code(module(jump)) == "PWC0121"


def test_a_program_without_a_body_is_refused() -> None:
    text = (
        f"module {{ func.func private @main({TYPE}) -> {TYPE} attributes {{topology = #mpmd.topology<{TWO_MESHES}>}} }}"
    )
    assert refusal_code(text) == "PWC0120"


def test_tokens_inside_a_fragment_are_accepted() -> None:
    inside = f"%k = stablehlo.create_token : !stablehlo.token\n %l = stablehlo.after_all %k : !stablehlo.token\n {ADD}"
    check_doubling(module(fragment("%0", "%arg0", inside=inside) + END))


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ("stage=0 | {call_counter = 1 : ui32}", "no microbatch 0"),
        ("stage=7 | {call_counter = 0 : ui32}", "no stage 0"),
    ],
)
def test_an_incomplete_pipeline_runs_with_a_warning(attributes: str, problem: str) -> None:
    stage, counter = attributes.split(" | ")
    text = module(fragment("%0", "%arg0", stated=f", {stage}", attributes=counter) + END)
    with pytest.warns(UserWarning, match=problem):
        check_doubling(text)


def test_non_ascii_names_of_arguments_are_kept() -> None:
    text = module(fragment("%0", "%arg0") + END).replace(f"%arg0: {TYPE})", f'%arg0: {TYPE} loc("gr\\C3\\BC"))')
    assert [p.name for p in check_doubling(text).plan.inputs] == ["gr\u00fc"]


def test_a_result_info_that_is_no_string_is_ignored() -> None:
    text = module(fragment("%0", "%arg0") + END).replace(f"-> ({TYPE})", f"-> ({TYPE} {{jax.result_info = 1 : i32}})")
    assert [p.name for p in check_doubling(text).plan.results] == ["out0"]
