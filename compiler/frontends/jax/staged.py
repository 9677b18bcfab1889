"""Represents a whole program as one JAX operation while JAX traces or transforms a function that calls it. The
operation has result types only, so `jax.eval_shape` works and `jax.grad` is refused. `pathways/api/program.py` calls
it.

Transformations that need the inside of a program are refused by name.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import jax.extend.core as jex_core
from jax.interpreters import ad, batching, mlir

from pathways.compiler.errors import TransformedProgram
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import ShapedArray
from pathways.dialect.user_line import caller

_ad: Any = ad
_batching: Any = batching
_mlir: Any = mlir
_primitive: Any = jex_core.Primitive("program")
_primitive.multiple_results = True


def stage(name: str, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Returns the results of program `name` on traced `operands`, as traced values of the types of `results`."""
    avals = tuple(ShapedArray(r.shape, r.dtype, weak_type=bool(r.weak_type)) for r in results)
    return _primitive.bind(*operands, name=name, avals=avals)


def _abstract(*_operands: Any, name: str, avals: tuple[Any, ...]) -> list[Any]:
    return list(avals)


def _refused(transformation: str, why: str, advice: str) -> Any:
    def rule(*_: Any, **parameters: Any) -> NoReturn:
        name: str = parameters["name"]
        words = advice.format(name=name)
        error = TransformedProgram(program=name, transformation=transformation, have_=why, advice=words, where=caller())
        raise PathwaysError(error)

    return rule


_BY_ITSELF = "call {name} directly: it is compiled already; move other code that must be compiled with it into {name}"

_primitive.def_abstract_eval(_abstract)
_primitive.def_impl(
    _refused(
        "a transformation that runs operations one by one",
        "the whole program as one operation, under jax.checkpoint, checkify or the like",
        "apply it inside of the program, or to the function before pw.program",
    )
)
_ad.primitive_jvps[_primitive] = _refused(
    "jax.grad, or another derivative,",
    "a derivative of the whole program, whose code JAX does not see at this point",
    "put it inside: pw.program(jax.grad({name})) is a program that contains {name}",
)
_batching.primitive_batchers[_primitive] = _refused(
    "jax.vmap",
    "a batch of whole programs, whose code JAX does not see at this point",
    "put it inside: pw.program(jax.vmap({name})) is a program that contains {name}",
)
_mlir.register_lowering(
    _primitive,
    _refused("jax.jit, or a loop that JAX compiles,", "a program inside of code for JAX's own devices", _BY_ITSELF),
)
