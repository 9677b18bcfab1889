"""Modules that contradict their plan, or would crash XLA or MLIR, are refused with an error code."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.fuzz_modules import (
    ONE,
    TYPE,
    alone,
    custom,
    honest,
    module_of,
    mutants,
    named,
    refusal,
    run_all,
    text_of,
    with_module,
)

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.check_modules import check_modules
from pathways.dialect.plan.modules.custom_calls import SETTING, is_known
from pathways.dialect.plan.modules.operations import MAX_CONSTANT_BYTES, Checker
from pathways.dialect.plan.modules.stated_module import Refused
from pathways.dialect.plan.modules.vet import vetted
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import write_plan
from pathways.dialect.platforms import PLATFORMS

ROWS = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
GANG = f"""module @gang attributes {{mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%a: {TYPE} {ROWS}, %b: {TYPE} {ROWS}) -> ({TYPE} {ROWS}) {{
    BODY
  }}
}}"""
ADD = f"%0 = stablehlo.add %a, %b : {TYPE}\n return %0 : {TYPE}"


def code_here(plan: Plan) -> str:
    """Returns the error code with which this process refuses the modules of a plan, or an empty string."""
    try:
        check_modules(plan, "plan.bin")
    except PathwaysError as error:
        return error.code
    return ""


def gang(body: str = ADD, change: Callable[[str], str] = str) -> Plan:
    source = change(GANG).replace("BODY", body)
    return with_module(honest(), named(honest(), "gang"), module_of(source))


def second_is(attributes: str) -> Callable[[str], str]:
    return lambda source: source.replace(f"%b: {TYPE} {ROWS}", f"%b: {TYPE} {attributes}")


def result_is(attributes: str) -> Callable[[str], str]:
    return lambda source: source.replace(f"({TYPE} {ROWS}) {{", f"({TYPE} {attributes}) {{")


def with_text(old: str, new: str) -> Callable[[str], str]:
    return lambda source: source.replace(old, new)


def split(dims: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding<@mesh, [{dims}]>}}"


def beside(attribute: str) -> str:
    return f'{{{attribute}, sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}'


LAYOUTS = {
    "split otherwise, in as many bytes": second_is(split('{}, {"x"}')),
    "whole": second_is(split("{}, {}")),
    "not stated": second_is(""),
    "left open": second_is(split('{"x", ?}, {}')),
    "in part of an axis": second_is(split('{"x":(1)2}, {}')),
    "a result split otherwise": result_is(split('{}, {"x"}')),
    "a whole result": result_is(split("{}, {}")),
    "a result not stated": result_is(""),
    "devices in another order": with_text('<["x"=4]>', '<["x"=4], device_ids=[3, 2, 1, 0]>'),
    "a smaller mesh": with_text('<["x"=4]>', '<["x"=2]>'),
    "a larger mesh": with_text('<["x"=4]>', '<["x"=8]>'),
    "replicas": with_text("num_replicas = 1", "num_replicas = 4"),
    "no replicas": with_text("num_replicas = 1", "num_replicas = 0"),
    "more partitions": with_text("num_partitions = 4", "num_partitions = 8"),
    "an older sharding": second_is('{mhlo.sharding = "{devices=[1,4]0,1,2,3}"}'),
    "an older sharding of no device": second_is('{mhlo.sharding = "{maximal device=99}"}'),
    "host memory": second_is(beside('mhlo.memory_kind = "pinned_host"')),
    "a layout": second_is(beside('mhlo.layout_mode = "{0,1}"')),
    "a layout of no array": second_is(beside('mhlo.layout_mode = "{0,1,2,3}"')),
    "the layout of a result": result_is(beside('mhlo.layout_mode = "{0,1}"')),
    "shardings for XLA alone": second_is(beside('mhlo.frontend_attributes = {xla.sdy.sharding = "x"}')),
    "what XLA reads of a module": with_text(
        "mhlo.num_replicas", "mhlo.cross_program_prefetches = [], mhlo.num_replicas"
    ),
    "given away to nothing": second_is(beside("tf.aliasing_output = 99 : i32")),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_module_whose_layouts_differ_from_the_plan_is_refused(name: str) -> None:
    assert code_here(gang(change=LAYOUTS[name])) == "PWC0604"


def test_modules_that_match_their_plan_are_accepted() -> None:
    assert code_here(gang()) == code_here(honest()) == refusal(write_plan(gang())) == ""


@pytest.mark.parametrize("result", ["99", "-1", "1"])
def test_an_argument_is_aliased_only_to_a_result_of_its_type(result: str) -> None:
    index = named(honest(), "alone")
    source = text_of(honest().computations[index].module)
    changed = source.replace("tf.aliasing_output = 0 : i32", f"tf.aliasing_output = {result} : i32")
    assert changed != source
    assert code_here(with_module(honest(), index, module_of(changed))) == "PWC0604"
    fits = source.replace("tf.aliasing_output = 0 : i32", "jax.buffer_donor = true")
    assert code_here(with_module(honest(), index, module_of(fits))) == ""


def manual(operations: str) -> str:
    rows = '[<@mesh, [{"x"}, {}]>]'
    return f"""%0 = sdy.manual_computation(%b) in_shardings={rows} out_shardings={rows} manual_axes={{"x"}} (
    %p: tensor<2x8xf32>) {{
      {operations}
      sdy.return %r : tensor<2x8xf32>
    }} : ({TYPE}) -> {TYPE}
    return %0 : {TYPE}"""


def reduced(groups: str, shape: str) -> str:
    return manual(f"""%r = "stablehlo.all_reduce"(%p) <{{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<{groups}> : tensor<{shape}xi64>, use_global_device_ids}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<2x8xf32>) -> tensor<2x8xf32>""")


def broadcast(groups: str) -> str:
    """Returns a collective whose devices MLIR itself does not count."""
    return manual(f"""%r = "stablehlo.collective_broadcast"(%p) <{{
        replica_groups = dense<{groups}> : tensor<1x4xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}> : (tensor<2x8xf32>) -> tensor<2x8xf32>""")


def permuted(pairs: str) -> str:
    return manual(f"""%r = "stablehlo.collective_permute"(%p) {{
        source_target_pairs = dense<{pairs}> : tensor<2x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : (tensor<2x8xf32>) -> tensor<2x8xf32>""")


def test_collectives_with_wrong_devices_are_refused() -> None:
    assert code_here(gang(reduced("[[0, 1, 2, 3]]", "1x4"))) == ""
    assert code_here(gang(reduced("[[0, 1], [2, 3]]", "2x2"))) == ""
    assert code_here(gang(reduced("[[0, 1]]", "1x2"))) == "PWC0604"
    assert code_here(gang(broadcast("[[0, 1, 2, 3]]"))) == ""
    assert code_here(gang(broadcast("[[0, 1, 2, 4]]"))) == "PWC0604"
    assert code_here(gang(permuted("[[0, 1], [1, 0]]"))) == ""
    assert code_here(gang(permuted("[[0, 9], [1, 0]]"))) == "PWC0604"


SELF = f"func.func private @f(%a: {TYPE}) -> {TYPE} {{\n %r = call @f(%a) : ({TYPE}) -> {TYPE}\n return %r : {TYPE} }}"
CALL = f"%r = call @f(%a) : ({TYPE}) -> {TYPE}"


def doubling(depth: int) -> str:
    functions = "".join(
        f"""func.func private @f{i or ""}(%a: {TYPE}) -> {TYPE} {{
          %x = call @f{i + 1}(%a) : ({TYPE}) -> {TYPE}
          %y = call @f{i + 1}(%x) : ({TYPE}) -> {TYPE}
          return %y : {TYPE} }}\n"""
        for i in range(depth)
    )
    return f"{functions}func.func private @f{depth}(%a: {TYPE}) -> {TYPE} {{ return %a : {TYPE} }}"


def chain(length: int) -> str:
    functions = "".join(
        f"func.func private @f{i or ''}(%a: {TYPE}) -> {TYPE} {{\n"
        f" %x = call @f{i + 1}(%a) : ({TYPE}) -> {TYPE}\n return %x : {TYPE} }}\n"
        for i in range(length)
    )
    return f"{functions}func.func private @f{length}(%a: {TYPE}) -> {TYPE} {{ return %a : {TYPE} }}"


def nested(depth: int) -> str:
    opened = "".join(f'%r{i or ""} = "stablehlo.if"(%c) ({{\n' for i in range(depth))
    closed = "".join(
        f"}}, {{ stablehlo.return %a : {TYPE} }}) : (tensor<i1>) -> {TYPE}\n"
        + (f"stablehlo.return %r{i} : {TYPE}\n" if i else "")
        for i in reversed(range(depth))
    )
    return f"%c = stablehlo.constant dense<true> : tensor<i1>\n{opened} stablehlo.return %a : {TYPE}\n{closed}"


def huge(shape: str, kind: str) -> str:
    made = "constant dense<1.5>" if kind == "constant" else "iota dim = 0"
    start, cut = ("[0:16, 0:4]", "16x4") if "x" in shape else ("[0:64]", "64")
    return f"""%h = stablehlo.{made} : tensor<{shape}xf32>
    %c = stablehlo.slice %h {start} : (tensor<{shape}xf32>) -> tensor<{cut}xf32>
    %r = stablehlo.reshape %c : (tensor<{cut}xf32>) -> {TYPE}"""


def infeed() -> str:
    return f"""%t = stablehlo.create_token : !stablehlo.token
    %r, %u = "stablehlo.infeed"(%t) {{infeed_config = "", layout = [[0, 1]]}} :
      (!stablehlo.token) -> ({TYPE}, !stablehlo.token)"""


def outfeed() -> str:
    return f"""%t = stablehlo.create_token : !stablehlo.token
    %u = "stablehlo.outfeed"(%a, %t) {{outfeed_config = ""}} : ({TYPE}, !stablehlo.token) -> !stablehlo.token
    %r = stablehlo.add %a, %a : {TYPE}"""


def received() -> str:
    return f"""%t = stablehlo.create_token : !stablehlo.token
    %r, %u = "stablehlo.recv"(%t) {{channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>,
      is_host_transfer = true}} : (!stablehlo.token) -> ({TYPE}, !stablehlo.token)"""


BODIES: dict[str, tuple[str, str, str]] = {
    "a function that calls itself": (CALL, SELF, "calls itself: @f -> @f"),
    "a function without a body": (CALL, f"func.func private @f(%a: {TYPE}) -> {TYPE}", "without a body"),
    "2^40 operations": (CALL, doubling(40), "inlined"),
    "a thousand calls deep": (CALL, chain(1000), "deep"),
    "300 branches deep": (nested(300), "", "deep"),
    "a constant of 4 TB": (huge(str(10**12), "constant"), "", "bytes"),
    "a constant of 12 GB": (huge(str(3 * 10**9), "constant"), "", "bytes"),
    "an array of 4 TB": (huge(str(10**12), "iota"), "", "bytes"),
    "more bytes than a number says": (huge("4611686018427387904x4", "constant"), "", "bytes"),
    "infeed": (infeed(), "", "waits for the host"),
    "outfeed": (outfeed(), "", "waits for the host"),
    "a receive from the host": (received(), "", "waits for the host"),
}


@pytest.mark.parametrize("name", BODIES)
def test_modules_that_would_crash_xla_are_refused(name: str) -> None:
    body, rest, said = BODIES[name]
    with pytest.raises(PathwaysError, match=said) as caught:
        vetted(alone(body, rest), "plan.bin")
    assert caught.value.code == "PWC0604" and code_here(alone(body, rest)) == "PWC0604"


def test_main_must_have_a_body_and_be_public() -> None:
    index = named(honest(), "alone")
    types = f"(%a: {TYPE} {{jax.buffer_donor = true}}, %k: tensor<8xf32>) -> ({TYPE}, tensor<f32>)"
    without = f"module @alone {{ func.func private @main{types.replace('%a: ', '').replace('%k: ', '')} }}"
    assert code_here(with_module(honest(), index, module_of(without))) == "PWC0604"
    private = ONE.replace("func.func public", "func.func private").replace("BODY", f"%r = stablehlo.sine %a : {TYPE}")
    assert code_here(with_module(honest(), index, module_of(private.replace("REST", "")))) == "PWC0604"


@pytest.mark.parametrize(
    "target", ["TopK", "SliceToDynamic", "__onednn$matmul", "xla.sdy.FuncResultSharding", "system", "InspectSharding"]
)
def test_unknown_custom_calls_are_refused_unless_the_user_allows_them(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_here(custom(target)) == refusal(write_plan(custom(target))) == "PWC0611"
    with pytest.raises(PathwaysError, match="PATHWAYS_CUSTOM_CALLS="):
        check_modules(custom(target), "plan.bin")
    monkeypatch.setenv(SETTING, f"other, {target[:3]}*")
    assert code_here(custom(target)) == refusal(write_plan(custom(target))) == ""


def test_known_custom_calls_depend_on_the_platform() -> None:
    assert is_known("lapack_sgetrf_ffi", "cpu", "") and not is_known("lapack_sgetrf_ffi", "tpu", "")
    assert is_known("cusolver_getrf_ffi", "gpu", "") and not is_known("cusolver_getrf_ffi", "cpu", "")
    assert is_known("mine", "cpu", "mine") and not is_known("mine.", "cpu", "mine") and not is_known("", "cpu", ",")
    assert not any("callback" in t for row in PLATFORMS.values() for t in row.custom_calls)


def test_python_callbacks_are_refused() -> None:
    assert code_here(custom("xla_ffi_python_cpu_callback")) == "PWC0604"
    assert refusal(write_plan(custom("xla_ffi_python_cpu_callback"))) == "PWC0611"


def test_a_module_given_as_text_is_refused() -> None:
    plan = with_module(honest(), 0, GANG.replace("BODY", ADD).encode())
    assert code_here(plan) == refusal(write_plan(plan)) == "PWC0604"


def test_mutated_modules_are_refused_or_run(tmp_path: Path, thorough: bool) -> None:
    """`python tests/support/fuzz_modules.py` tries more."""
    passed: list[Path] = []
    for number, raw in enumerate(mutants(seed=0, count=24 if thorough else 8)):
        if not (code := refusal(raw)):
            passed.append(tmp_path / f"{number}.bin")
            passed[-1].write_bytes(raw)
        assert code in ("", "PWC0604", "PWC0609", "PWC0611")
    code, said = run_all(passed)
    assert code == 0, said


def test_a_large_module_may_have_larger_constants() -> None:
    source = f"%c = stablehlo.constant dense<1.5> : tensor<{MAX_CONSTANT_BYTES // 4 + 1}xf32>"
    module = parse(source, make_context())
    (constant,) = module.body.operations
    Checker(1, "cpu", "", size=MAX_CONSTANT_BYTES // 8 + 1).check(constant.operation)
    with pytest.raises(Refused, match="more than 67108864"):
        Checker(1, "cpu", "", size=MAX_CONSTANT_BYTES // 8).check(constant.operation)
