"""Maps JAX primitives to the functions that analyze them for losses over microbatches. `walk.py` looks primitives up
here. A new primitive of JAX needs a rule in the file of its kind, or an entry in UNDECIDABLE.
"""

from pathways.compiler.frontends.jax.pipeline.mixing import (
    control,
    elementwise,
    meshes,
    order,
    picking,
    products,
    randomness,
    reductions,
    shapes,
)
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import Rule
from pathways.compiler.frontends.jax.pipeline.work import CUSTOM, JITS, REMATS

CALLS: dict[str, str] = {
    **dict.fromkeys(JITS, "jaxpr"),
    **dict.fromkeys(REMATS, "jaxpr"),
    **dict.fromkeys(CUSTOM, "call_jaxpr"),
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "remat_opt": "fwd_jaxpr",
    "custom_lin": "jaxpr",
    "eval_jaxpr": "jaxpr",
}
"""Calls that are expanded, with the parameter that holds the called jaxpr."""
IN_CALLS = frozenset({*control.RULES, "shard_map"})
"""Operations with bodies. They are walked even without batch operands, since their bodies may draw noise."""

MODULES = (elementwise, shapes, reductions, products, picking, order, randomness, control, meshes)
"""One module for each kind of operation, with the rules of its primitives."""
RULES: dict[str, Rule] = {name: rule for module in MODULES for name, rule in module.RULES.items()}

UNDECIDABLE = frozenset(
    {
        # Python, other compilers and foreign code: their computation cannot be read.
        *("pure_callback", "io_callback", "debug_callback", "debug_print", "ffi_call", "pallas_call", "mosaic"),
        *("tpu_custom_call", "triton_kernel_call", "custom_partitioning", "ragged_dot", "ragged_dot_general"),
        # Mutable arrays: a write has no place in a function of values.
        *("get", "swap", "addupdate", "new_ref", "ref_get", "ref_set", "run_state", "freeze", "empty_ref", "empty2"),
        *("inspect_sharding", "create_token", "after_all", "infeed", "outfeed", "assert_consumed_value"),
        # Solves and reductions by functions of the user.
        *("reduce", "select_and_scatter", "scatter_apply", "root", "linear_call"),
        # Exchanges between devices in parts of the data's own size.
        *("all_to_all", "ragged_all_to_all", "unreduced_psum", "vary_unreduced_cast", "preduced"),
        *("reduce_scatter", "psum_scatter", "unreduced_reduce_scatter"),
    }
)
"""Known operations for which no rule decides what they do with a batch."""
