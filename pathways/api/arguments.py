"""Finds shape and element type of each array in the arguments of a program, and rejects values that are not JAX arrays.
`program.py` calls it at each call and each trace; the types are part of the cache key.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pathways.api.array import Array
from pathways.compiler.frontends.jax import compat
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import native
from pathways.dialect.errors import BadArguments
from pathways.dialect.jax_api import ShapedArray, dtypes, tree_util
from pathways.dialect.user_line import caller
from pathways.runtime.errors import WrongInput


def key_of(leaf: Any) -> tuple[Any, ...]:
    """Returns the part of a call signature that represents a leaf. Raises as `aval_of_leaf`."""
    if isinstance(leaf, Array):
        return leaf.signature
    aval = aval_of_leaf(leaf)
    return aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))


def aval_of_leaf(leaf: Any) -> Any:
    """Returns the abstract value of a leaf. Raises TypeError, ValueError or OverflowError if it is not a JAX array."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if isinstance(leaf, Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
    try:
        aval = compat.aval_of(leaf)
        if type(aval) is not ShapedArray and (compat.is_ref(leaf) or not hasattr(aval, "shape")):
            raise TypeError("a mutable array, or a type of JAX that is no array")
        return aval
    except TypeError:
        converted = native(leaf)
        if converted is leaf:
            raise
        return compat.aval_of(converted)


def check_left_out(**options: Any) -> None:
    """Raises PWC0104 for an option of `jax.jit` that programs do not have, unless it has jit's default, None."""
    for name, value in options.items():
        if value is not None:
            problem, rule = f"programs have no option {name}", f"{name}=None"
            advice = "the placement chooses devices, and `XLA_FLAGS` sets options of the compiler"
            have = f"{name}={value!r}"
            raise PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller()))


NO_ARRAYS = (TypeError, ValueError, OverflowError)


def refusal(program: str, dynamic: Sequence[Any], names: Sequence[str], error: Exception) -> Exception:
    """Builds the error for the first leaf that is not an array; returns `error`, which JAX raised, if there is none."""
    for path, leaf in tree_util.tree_flatten_with_path(tuple(dynamic))[0]:
        try:
            aval_of_leaf(leaf)
        except NO_ARRAYS as found:
            name: str = names[path[0].idx] + tree_util.keystr(path[1:])
            return PathwaysError(_refused(program, name, leaf, found), also=(type(found),))
    return error


def _refused(program: str, name: str, leaf: Any, error: Exception) -> Diagnostic:
    if isinstance(leaf, int):
        width: str = dtypes.canonicalize_dtype(int).name
        have = f"{leaf}, which {width} cannot hold"
        return WrongInput(name=name, program=program, have_=have, rule=f"{width} []", where=caller())
    advice = "convert it to an array, or list it in static_argnums or static_argnames"
    dtype = getattr(leaf, "dtype", None)
    if compat.is_ref(leaf):
        have, advice = "a mutable array", "call the program with it; for lower and compile, pass ref[...]"
    elif isinstance(leaf, np.ma.MaskedArray):
        have, advice = "a masked array", "pass x.filled(value), and the mask as a separate argument"
    elif dtype is not None:
        have, advice = f"a {type(leaf).__name__} of dtype {dtype}", f"x.astype(...) with a type of JAX; or {advice}"
    elif isinstance(error, TypeError):
        have = f"a {type(leaf).__name__}"
    else:
        have = f"a {type(leaf).__name__}: {error}"
    return BadArguments(
        problem=f"the argument {name} of {program} is not an array that JAX supports",
        have_=have,
        rule="pytrees of arrays, pw.Arrays and numbers",
        advice=advice,
        where=caller(),
    )
