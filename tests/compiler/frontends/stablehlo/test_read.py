"""Tests that a module of an unmodified JAX program becomes a program of one call, or is refused."""

import jax
import numpy as np
import pytest

from pathways.compiler.frontends.stablehlo.read import read_stablehlo
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import bytecode, make_context, parse, portable, pretty

STEP = """module @step attributes {%s} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %%y: %s) -> tensor<4xf32> {
    return %%x : tensor<4xf32>
  }
}"""


def artifact(attributes: str, type_: str = "tensor<4xi32>") -> bytes:
    return portable(bytecode(parse(STEP % (attributes, type_), make_context()).operation))


def test_a_module_becomes_a_program_of_one_call_on_its_mesh() -> None:
    found = read_stablehlo(artifact("mhlo.num_partitions = 4 : i32"), "cpu")
    assert (found.name, found.devices, found.donated, len(found.outs)) == ("step", 4, (0,), 1)
    text = pretty(found.built.module)
    assert '<["x"=2, "y"=2]>' in text and text.count('"pw.call"') == 1
    assert "pw.donate" in text and "tf.aliasing_output" not in text


def test_a_module_without_a_mesh_over_its_devices_gets_one_axis() -> None:
    found = read_stablehlo(artifact("mhlo.num_partitions = 3 : i32"), "cpu")
    assert '<["devices"=3]>' in pretty(found.built.module)


TWO_MESHES = """module @step attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @a = <["x"=4], device_ids=[3, 2, 1, 0]>
  sdy.mesh @b = <["y"=4]>
  func.func public @main(%%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@a, [%s]>})
      -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@b, [{"y"}]>}) {
    %%0 = sdy.sharding_constraint %%x <@b, [{}]> : tensor<4xf32>
    %%1 = sdy.sharding_constraint %%0 <@%s, [{}]> : tensor<4xf32>
    return %%1 : tensor<4xf32>
  }
}"""


def of_two_meshes(argument: str, inside: str) -> bytes:
    return portable(bytecode(parse(TWO_MESHES % (argument, inside), make_context()).operation))


def test_arguments_on_another_mesh_are_moved_to_that_of_the_computation() -> None:
    text = pretty(read_stablehlo(of_two_meshes('{"x"}', "b"), "cpu").built.module)
    assert text.count('"pw.transfer"') == 1
    assert 'axes = #sdy.mesh<["x"=4]>, devices = "3,2,1,0"' in text and "device_ids" not in text


def test_the_computation_keeps_only_the_mesh_of_its_operations() -> None:
    """The mesh of an argument is declared first, and a replicated argument names it."""
    for argument in ('{"x"}', "{}"):
        text = pretty(read_stablehlo(of_two_meshes(argument, "b"), "cpu").built.module)
        assert text.count("sdy.mesh @") == 1 and "@a" not in text


def test_meshes_of_one_device_split_nothing() -> None:
    text = TWO_MESHES.replace("= 4 : i32", "= 1 : i32").replace('"x"=4], device_ids=[3, 2, 1, 0]', '"x"=1]')
    text = text.replace('"y"=4', '"y"=1') % ('{"x"}', "a")
    found = read_stablehlo(portable(bytecode(parse(text, make_context()).operation)), "cpu")
    assert '"pw.transfer"' not in pretty(found.built.module)


@pytest.mark.parametrize(("argument", "inside"), [('{"x"}', "a"), ('{"x":(1)2}', "b"), ('{"x", ?}', "b")])
def test_operations_on_two_meshes_and_open_arguments_on_another_are_refused(argument: str, inside: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0129"):
        read_stablehlo(of_two_meshes(argument, inside), "cpu")


def test_an_artifact_of_jax_export_is_read() -> None:
    exported = jax.export.export(jax.jit(lambda x: x + 1))(np.ones(3, np.float32))
    assert read_stablehlo(exported.mlir_module_serialized, "cpu").devices == 1


CUSTOM_CALL = """module @step {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @NAME(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""


@pytest.mark.parametrize("target", ["CustomSPMDPartitioning", "xla_ffi_python_cpu_callback", "anything"])
def test_native_code_that_names_addresses_is_refused(target: str) -> None:
    text = CUSTOM_CALL.replace("NAME", target)
    with pytest.raises(PathwaysError, match=f"PWC0129(.|\n)*{target}"):
        read_stablehlo(portable(bytecode(parse(text, make_context()).operation)), "cpu")
    allowed = CUSTOM_CALL.replace("NAME", "Sharding")
    assert read_stablehlo(portable(bytecode(parse(allowed, make_context()).operation)), "cpu").name == "step"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"no module", "PWC0702"),
        (artifact("mhlo.num_replicas = 2 : i32"), "PWC0129"),
        (artifact("mhlo.num_partitions = 1 : i32", "tensor<?xi32>"), "PWC0129"),
        (artifact("mhlo.num_partitions = 1 : i32", "!stablehlo.token"), "PWC0129"),
    ],
)
def test_an_unreadable_or_unsupported_module_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(PathwaysError, match=code):
        read_stablehlo(raw, "cpu")
