"""Splits a batch into microbatches, and combines their losses and auxiliary values (mean, sum, concatenation).
`pipeline.py` and `whole_batch.py` use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import jax
from jax import lax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.errors import BadPipeline
from pathways.dialect import jax_api
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.user_line import caller

REDUCE = ("mean", "sum", "weighted")
AUX = ("stack", "mean", "sum", "last", "concat")
Finish: TypeAlias = Callable[[Any, Any], Any]
"""Computes the loss from the sums over the microbatches and the types of the summed values."""
_any_lax: Any = lax
_tree: Any = jax.tree


@dataclass(frozen=True)
class Microbatches:
    """The number of microbatches, and the rules that combine their losses and auxiliary values."""

    count: int
    reduce: str
    has_aux: bool
    aux: str

    def split(self, leaf: Any, name: str, *, is_whole: bool = False) -> Any:
        """Returns a leaf of the batch with a leading axis of microbatches.

        A key is split into one key per microbatch. If the loss `is_whole`, each microbatch gets the key of the batch.
        Raises PWC0112 if the rows do not divide evenly.
        """
        shape = tuple(leaf.shape)
        if compat.is_key(leaf) and not shape and not is_whole:
            return _like(leaf, (self.count,), lambda: jax_api.random.split(leaf, self.count))
        if not shape:
            return _like(leaf, (self.count,), lambda: jax_api.numpy.broadcast_to(leaf, (self.count,)))
        if shape[0] % self.count:
            have = f"{name or 'the batch'} has {shape[0]} rows: {shape[0]} mod {self.count} = {shape[0] % self.count}"
            advice = "another number of microbatches, or a padded batch and reduce='weighted'"
            if str(leaf.dtype) == "uint32" and shape in ((2,), (4,)):
                advice = "a typed key, jax.random.key(seed): a key of jax.random.PRNGKey is an array with rows"
            raise bad_pipeline(
                f"a batch does not divide into {self.count} microbatches", have, "equal numbers of rows in each", advice
            )
        parts = (self.count, shape[0] // self.count, *shape[1:])
        return _like(leaf, parts, lambda: jax_api.numpy.reshape(leaf, parts))

    def over(
        self,
        run: Callable[[Sequence[Any]], tuple[Any, Any]],
        batch: Sequence[Any],
        finish: Finish | None = None,
    ) -> Any:
        """Returns the loss over all microbatches.

        `run(leaves of one)` returns the values to sum, and the auxiliary values. `finish` computes the loss from the
        sums and the types of the summed values. Without `finish`, `reduce` does.
        """

        def one(total: Any, leaves: Sequence[Any]) -> tuple[Any, Any]:
            value, rest = run(leaves)
            return _tree.map(_added, total, _tree.map(_as_array, value)), rest

        def value_of(leaves: Sequence[Any]) -> Any:
            return _tree.map(_as_array, run(leaves)[0])

        shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in batch]
        first = jax_api.eval_shape(value_of, shapes)
        total, rest = _any_lax.scan(one, _tree.map(_zeros, first), list(batch))
        value = (finish or self._reduced)(total, first)
        return (value, _tree.map(self._aux, rest)) if self.has_aux else value

    def _reduced(self, total: Any, first: Any) -> Any:
        if self.reduce == "weighted":
            return in_type_of(first[0], total[0] / total[1])
        return in_type_of(first, total / self.count if self.reduce == "mean" else total)

    def unsplit(self, made: Any) -> Any:
        """Returns the loss and auxiliary values of a batch that is not split."""
        value, rest = self.parted(made)
        value = value[0] / value[1] if self.reduce == "weighted" else value
        return (value, rest) if self.has_aux else value

    def parted(self, made: Any) -> tuple[Any, Any]:
        """Returns the loss and the auxiliary values. Raises PWC0112 if their structure is not as declared."""
        value: Any = made
        rest: Any = None
        if self.has_aux:
            if not isinstance(made, tuple) or len(cast("tuple[Any, ...]", made)) != 2:
                problem = "the loss does not return a pair, and has_aux=True"
                raise bad_pipeline(problem, _described(made), "(loss, aux)", "leave has_aux out")
            value, rest = cast("tuple[Any, Any]", made)
        if self.reduce == "weighted":
            numbers = tuple(map(_as_array, cast("Any", value))) if isinstance(value, tuple | list) else ()
            if len(numbers) != 2 or any(n.shape for n in numbers):
                rule = "(sum, weight): the sum of the losses of a microbatch, and its weight"
                advice = "return the masked sum and the sum of the mask, in place of their quotient"
                raise bad_pipeline("reduce='weighted' needs two numbers", _described(value), rule, advice)
            value = numbers
        elif self.count > 1 and getattr(value, "shape", None) != ():
            advice = "return the mean over the batch; return other values as aux, with has_aux=True"
            raise bad_pipeline("the loss is not one number", _described(value), "a scalar", advice)
        return value, rest

    def _aux(self, leaf: Any) -> Any:
        match self.aux:
            case "mean":
                return leaf.mean(0)
            case "sum":
                return leaf.sum(0)
            case "last":
                return leaf[-1]
            case "concat":
                if leaf.ndim < 2:
                    have = f"a value of shape {tuple(leaf.shape[1:])} for each microbatch"
                    advice = "aux='stack' or aux='mean'"
                    raise bad_pipeline("aux='concat' needs arrays with rows", have, "one dimension or more", advice)
                return jax_api.numpy.reshape(leaf, (-1, *leaf.shape[2:]))
            case _:
                return leaf


def in_type_of(loss: Any, value: Any) -> Any:
    """Casts a value to the type of a loss. For an integer loss the value keeps its type, since a mean is no integer."""
    is_number = jax_api.dtypes.issubdtype(loss.dtype, jax_api.numpy.floating)
    return value.astype(loss.dtype) if is_number else value


def bad_pipeline(problem: str, have: str, rule: str, advice: str) -> PathwaysError:
    """Returns PWC0112 at the line of the user's call."""
    return PathwaysError(BadPipeline(problem=problem, have_=have, rule=rule, advice=advice, where=caller()))


def _described(value: Any) -> str:
    def one(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "shape") else repr(leaf)

    return str(_tree.map(one, value))


def _as_array(value: Any) -> Any:
    """Converts a Python number to an array: a count of rows may be a weight."""
    return value if hasattr(value, "shape") else jax_api.numpy.asarray(value)


def _added(total: Any, value: Any) -> Any:
    return total + value.astype(total.dtype)


def _zeros(like: Any) -> Any:
    """Returns the initial value of a sum.

    It has at least 32 bits: 16 bits overflow or lose precision over many microbatches.
    """
    narrow = jax_api.dtypes.issubdtype(like.dtype, jax_api.numpy.floating) and like.dtype.itemsize < 4
    return jax_api.numpy.zeros(like.shape, jax_api.numpy.float32 if narrow else like.dtype)


def _like(leaf: Any, shape: tuple[int, ...], make: Callable[[], Any]) -> Any:
    return jax.ShapeDtypeStruct(shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else make()
