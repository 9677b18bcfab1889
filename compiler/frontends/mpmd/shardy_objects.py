"""Reads the Python objects that Shardy's `mpmd.jit(...).lower(...)` and `.trace(...)` return. It must not import
Shardy. `pathways/api/mpmd.py` calls it for `pw.from_mpmd`.

This is the compat module for Shardy's Python package. All attributes of a lowered program are public. A traced program
must stop after Shardy's phase IMPORT, which no public function does. The module uses two private names,
`_prepare_partitioning_args` and `_apply_partitioning`. If they are missing, PWC0123 tells the user to pass the lowered
program, or its text.
"""

import sys
from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.mpmd.errors import MpmdUnsupported, NoMpmdJit
from pathways.compiler.frontends.mpmd.source import Described, MpmdSource
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.host_callbacks import register_callbacks
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.jax_api import ShapeDtypeStruct, dtypes, eval_shape, key_data, tree_util
from pathways.dialect.mlir import bytecode
from pathways.dialect.shardy_mpmd import partitioner

_PREPARE, _PARTITION = "_prepare_partitioning_args", "_apply_partitioning"


def is_lowered(program: Any) -> bool:
    return hasattr(program, "compiler_ir") and hasattr(program, "kept_inputs_indices")


def is_traced(program: Any) -> bool:
    return hasattr(program, _PREPARE)


def of_lowered(program: Any, owner: object) -> MpmdSource:
    """Returns the program after all of Shardy's phases. `owner` keeps its Python callbacks alive."""
    return _source(program.compiler_ir("mpmd"), program.name, program, owner)


def of_traced(program: Any, owner: object, where: Where | None) -> MpmdSource:
    """Returns the program after Shardy's phase IMPORT. Raises PWC0123, PWC0125."""
    apply = getattr(sys.modules.get(type(program).__module__), _PARTITION, None)
    if apply is None:
        have, rule = f"{type(program).__qualname__}, whose module has no {_PARTITION}", "Shardy's mpmd.jit as of 2026"
        advice = "pw.from_mpmd(mpmd.jit(f, config).lower(...)), or the text of a module after IMPORT"
        what = "this version of Shardy's package"
        raise PathwaysError(NoMpmdJit(what=what, have_=have, rule=rule, advice=advice, where=where))
    module, arguments, rest = getattr(program, _PREPARE)()
    result = apply(module, arguments, partitioner().PartitioningPhase.IMPORT)
    imported = getattr(result, "mpmd_module", None) or module
    return _source(imported, arguments.func_name, rest.jax_fn_info, owner)


def _source(module: Any, name: str, info: Any, owner: object) -> MpmdSource:
    if getattr(info, "const_args", ()):
        rule, advice = "arrays as arguments, or as constants of the module", "pass them as arguments"
        what = "an array that the function closes over, hoisted out of the module,"
        have = f"{len(info.const_args)} such arrays"
        raise PathwaysError(MpmdUnsupported(what=what, have_=have, rule=rule, advice=advice))
    callbacks = tuple(getattr(info, "host_callbacks", None) or ())
    numbers = register_callbacks(callbacks, owner) if callbacks else None
    return MpmdSource(name, bytecode(module.operation), _described(info), numbers)


def _described(info: Any) -> Described:
    paths = _paths(info.input_tree), _paths(info.output_tree)
    taken, made = info.global_flat_input_abstract_values, info.global_flat_output_abstract_values
    keystr = tree_util.keystr
    inputs = [_stored(f"arg{p[0].idx}{keystr(p[1:])}", a) for p, a in zip(paths[0], taken, strict=True)]
    results = [_stored(f"out{keystr(p)}", a)[0] for p, a in zip(paths[1], made, strict=True)]
    return Described(inputs, sorted(info.kept_inputs_indices), results, info.input_tree, info.output_tree)


def _paths(tree: Any) -> Sequence[Any]:
    counted = tree_util.tree_unflatten(tree, list(range(tree.num_leaves)))
    return [path for path, _ in tree_util.tree_flatten_with_path(counted)[0]]


def _stored(name: str, aval: Any) -> tuple[Argument, ArrayType]:
    """Returns the argument that the user sees, and the type in which it is stored: keys as their data."""
    weak = bool(getattr(aval, "weak_type", False))
    if dtypes.issubdtype(aval.dtype, dtypes.prng_key):
        data = eval_shape(key_data, ShapeDtypeStruct(aval.shape, aval.dtype))
        return Argument(name, str(aval.dtype), weak), ArrayType(tuple(data.shape), str(data.dtype))
    return Argument(name, None, weak), ArrayType(tuple(aval.shape), str(dtypes.canonicalize_dtype(aval.dtype)))
