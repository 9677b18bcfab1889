"""Lists the custom calls (native code by name) that JAX itself emits, one set for each platform. A plan may contain
only these: the checks of loaded plans refuse all others.

XLA finds the name of a custom call among all functions registered in the process. Some names of XLA itself kill the
process if they are used in a way that JAX does not (`TopK`, `SliceToDynamic`, `__onednn$...`). So a plan may use only
the names listed here. They were collected from `jax/_src`, `jax/experimental` and `jaxlib` of jax 0.10 to 0.12.

Host callbacks are left out on purpose. So are `CustomSPMDPartitioning` and `InspectSharding`, which contain addresses
of the process that wrote them.
"""

_ANY = """
AllocateBuffer ApproxTopK CreateBuffer LayoutConstraint Pin Sharding SPMDFullToShardShape SPMDShardToFullShape Unpin
annotate_device_placement dce_sink shape_assertion
"""
_RAGGED = "ragged_all_to_all"
"""Not allowed on CPU, where it crashes XLA."""
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
"""Their operands are pointers that LAPACK does not check; dialect/plan/modules/lapack.py checks their shapes."""
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
