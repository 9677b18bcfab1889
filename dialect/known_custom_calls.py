"""The custom calls that JAX itself makes, a set a platform.

A custom call names native code. XLA looks the name up among all that is registered in the process, and has names of
its own that kill the process where JAX would not write them (`TopK`, `SliceToDynamic`, `__onednn$...`). So a plan may
name what is listed here: collected from `jax/_src`, `jax/experimental` and `jaxlib` of jax 0.10 to 0.12. Left out on
purpose: everything that calls Python back, and `CustomSPMDPartitioning` and `InspectSharding`, which hold addresses of
the process that wrote them.
"""

_ANY = """
AllocateBuffer ApproxTopK CreateBuffer LayoutConstraint Pin Sharding SPMDFullToShardShape SPMDShardToFullShape Unpin
annotate_device_placement dce_sink shape_assertion
"""
_RAGGED = "ragged_all_to_all"
"""Not on CPU, where XLA dies of it."""
_LAPACK = (
    "gees geev gehrd geqp3 geqrf gesdd gesvd getrf gtsv heevd hetrd orgqr ormqr potrf syevd sytrd trsm ungqr unmqr"
)
_SOLVER = "csrlsvqr geev geqrf gesdd gesvd gesvdj gesvdp getrf orgqr ormqr potrf syevd syrk sytrd"
_SPARSE = "coo_fromdense coo_matmat coo_matvec coo_todense csr_fromdense csr_matmat csr_matvec csr_todense gtsv2"
_FMHA = "Softmax ScaleBiasSoftmax SoftmaxDropout ScaleBiasSoftmaxDropout"
_TPU = """
Eigh LuDecomposition ProductOfElementaryHouseholderReflectors Qr stablehlo.dynamic_approx_top_k tpu_custom_call
"""


def _gpu(vendor: str) -> set[str]:
    names = {f"{vendor}solver_{n}_ffi" for n in _SOLVER.split()} | {f"{vendor}sparse_{n}_ffi" for n in _SPARSE.split()}
    names |= {f"{vendor}dnn_rnn_ffi", f"{vendor}dnn_rnn_bwd_ffi", f"{vendor}_threefry2x32_ffi"}
    names |= {f"{vendor}_cholesky_update_ffi", f"{vendor}_lu_pivots_to_permutation"}
    names |= {f"{vendor}_tridiagonal_solve_perturbed", f"{vendor}_tridiagonal_solve_perturbed_ffi"}
    return names | {f"{vendor}hybrid_{n}" for n in ("eig_real", "eig_comp", "geqp3")}


_CUDNN = {
    *(f"__cudnn$fmha{n}{back}" for n in _FMHA.split() for back in ("", "Backward")),
    "__cudnn$fmhaSoftmaxF8",
    "__cudnn$fmhaSoftmaxBackwardF8",
    "__cudnn$fusion",
    "__op$block_scaled_dot",
}

LAPACK = frozenset(f"lapack_{t}{n}_ffi" for t in "sdcz" for n in _LAPACK.split())
"""Their operands are pointers that nothing checks: see dialect/plan/modules/lapack.py."""
ON_CPU = LAPACK | {"cpu_csr_sparse_dense_ffi", "tridiagonal_solve_perturbed_ffi", *_ANY.split()}
ON_GPU = frozenset(
    _gpu("cu")
    | _gpu("hip")
    | _CUDNN
    | {
        "__gpu$xla.gpu.triton",
        "mosaic_gpu_v2",
        "triton_kernel_call_ffi",
        "triton_kernel_call",
        _RAGGED,
        *_ANY.split(),
    }
)
ON_TPU = frozenset({*_TPU.split(), _RAGGED, *_ANY.split()})
