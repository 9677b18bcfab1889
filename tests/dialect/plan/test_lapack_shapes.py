"""LAPACK calls that JAX makes are accepted. Calls with other shapes, which could write out of bounds, are refused."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from support.fuzz_modules import honest, module_of, named, with_module

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.check_modules import check_modules
from pathways.dialect.plan.modules.lapack import check_lapack
from pathways.dialect.plan.modules.stated_module import Refused

jit: Any = jax.jit
linalg: Any = lax.linalg
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cholesky": linalg.cholesky,
    "eig": linalg.eig,
    "eigenvalues": lambda x: linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False),
    "eigh": linalg.eigh,
    "hessenberg": linalg.hessenberg,
    "lu": linalg.lu,
    "qr": lambda x: linalg.qr(x, full_matrices=False),
    "whole qr": lambda x: linalg.qr(x, full_matrices=True),
    "pivoted qr": lambda x: linalg.qr(x, pivoting=True, full_matrices=False),
    "schur": linalg.schur,
    "svd": lambda x: linalg.svd(x, full_matrices=False),
    "whole svd": lambda x: linalg.svd(x, full_matrices=True),
    "singular values": lambda x: linalg.svd(x, compute_uv=False),
    "svd by qr": lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.QR, full_matrices=False),
    "triangular solve": lambda x: linalg.triangular_solve(x, x[..., :2], left_side=True),
    "triangular solve from the right": lambda x: linalg.triangular_solve(x, x[..., :2, :], left_side=False),
    "tridiagonal": linalg.tridiagonal,
    "tridiagonal solve": lambda x: linalg.tridiagonal_solve(x[..., 0], x[..., 1], x[..., 2], x[..., :2]),
}
SQUARE_SHAPES = [(5, 5), (2, 5, 5), (1, 1)]
ANY_SHAPE = [*SQUARE_SHAPES, (5, 3), (3, 5), (2, 3, 5)]
FUNCTIONS_OF_ANY_SHAPE = ("lu", "qr", "whole qr", "pivoted qr", "svd", "whole svd", "singular values", "svd by qr")


def calls(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "stablehlo.custom_call":
                    yield inner.operation
                yield from calls(inner.operation)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lapack_calls_of_jax_are_accepted(name: str) -> None:
    seen = 0
    for shape in ANY_SHAPE if name in FUNCTIONS_OF_ANY_SHAPE else SQUARE_SHAPES:
        for dtype in (np.float32, np.complex64):
            if name == "tridiagonal solve" and shape == (1, 1):
                continue
            lowered = jit(FUNCTIONS[name]).trace(jax.ShapeDtypeStruct(shape, dtype)).lower(lowering_platforms=("cpu",))
            for call in calls(lowered.compiler_ir().operation):
                target = call.attributes["call_target_name"].value
                assert target.startswith("lapack_")
                check_lapack(call, target)
                seen += 1
    assert seen


M, INFO = "tensor<8x8xf32>", "tensor<i32>"
SVD = [M, "tensor<8xf32>", M, M, INFO]
HOSTILE: dict[str, tuple[str, list[str], str]] = {
    "too few pivots": ("lapack_sgetrf_ffi", [M, "tensor<1xi32>", INFO], ""),
    "no info": ("lapack_sgetrf_ffi", [M, "tensor<8xi32>"], ""),
    "a smaller result": ("lapack_sgetrf_ffi", ["tensor<4x4xf32>", "tensor<8xi32>", INFO], ""),
    "too few factors": ("lapack_sgeqrf_ffi", [M, "tensor<7xf32>"], ""),
    "too few values": ("lapack_ssyevd_ffi", [M, "tensor<1xf32>", INFO], "mode = 86 : ui8, uplo = 76 : ui8"),
    "small vectors": ("lapack_sgesdd_ffi", [*SVD[:2], "tensor<1x1xf32>", *SVD[3:]], "mode = 65 : ui8"),
    "another mode": ("lapack_sgesdd_ffi", SVD, "mode = 79 : ui8"),
    "no mode": ("lapack_sgesdd_ffi", SVD, ""),
    "sorted by nothing": (
        "lapack_sgees_ffi",
        [M, M, "tensor<8xf32>", "tensor<8xf32>", INFO, INFO],
        "mode = 86 : ui8, sort = 83 : ui8",
    ),
}


def plan_with(target: str, results: list[str], config: str) -> Any:
    source = f"""module @alone attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
      func.func public @main(%a: {M} {{jax.buffer_donor = true}}, %k: tensor<8xf32>) -> ({M}, tensor<f32>) {{
        %q:{len(results)} = "stablehlo.custom_call"(%a) {{
          call_target_name = "{target}", api_version = 4 : i32, backend_config = {{{config}}}, has_side_effect = true
        }} : ({M}) -> ({", ".join(results)})
        %s = stablehlo.constant dense<1.0> : tensor<f32>
        return %a, %s : {M}, tensor<f32>
      }}
    }}"""
    return with_module(honest(), named(honest(), "alone"), module_of(source))


@pytest.mark.parametrize("name", HOSTILE)
def test_calls_with_wrong_shapes_or_modes_are_refused(name: str) -> None:
    with pytest.raises(PathwaysError, match=r"lapack_s|gesdd|gees") as caught:
        check_modules(plan_with(*HOSTILE[name]), "plan.bin")
    assert caught.value.code == "PWC0604"


def test_calls_with_matching_shapes_are_accepted() -> None:
    check_modules(plan_with("lapack_sgetrf_ffi", [M, "tensor<8xi32>", INFO], ""), "plan.bin")
    check_modules(plan_with("lapack_sgesdd_ffi", SVD, "mode = 83 : ui8"), "plan.bin")


def check_reflectors(name: str, operands: str, config: str) -> None:
    """Checks a call that multiplies the reflectors of a matrix."""
    types = operands.split()
    source = f"""func.func @f({", ".join(f"%{n}: {t}" for n, t in enumerate(types))}) {{
      %r = "stablehlo.custom_call"({", ".join(f"%{n}" for n in range(len(types)))}) {{
        call_target_name = "lapack_s{name}_ffi", api_version = 4 : i32, backend_config = {{{config}}}
      }} : ({", ".join(types)}) -> {types[-1] if name == "ormqr" else types[0]}
      return
    }}"""
    module = parse(source, make_context())
    (call,) = calls(module.operation)
    check_lapack(call, f"lapack_s{name}_ffi")


@pytest.mark.parametrize(
    ("name", "matrices", "config"),
    [
        ("orgqr", "tensor<8x4xf32> tensor<{}xf32>", ""),
        ("orgqr", "tensor<4x8xf32> tensor<{}xf32>", ""),
        ("ormqr", "tensor<8x4xf32> tensor<{}xf32> tensor<8x2xf32>", "left = true"),
        ("ormqr", "tensor<8x4xf32> tensor<{}xf32> tensor<2x8xf32>", "left = false"),
    ],
)
def test_a_matrix_has_no_more_reflectors_than_rows_or_columns(name: str, matrices: str, config: str) -> None:
    check_reflectors(name, matrices.format(4), config)
    for count in (5, 8):
        with pytest.raises(Refused, match=f"with {count} reflectors"):
            check_reflectors(name, matrices.format(count), config)
