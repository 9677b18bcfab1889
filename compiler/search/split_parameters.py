"""Decides how parameters are split over model-parallel devices, and finds the matrix products whose results must then
be summed over devices. `profile.py` calls it for `pw.search`.

The method is Megatron's (Shoeybi et al., 2019), applied to the jaxpr. A product with a parameter splits the dimension
that it makes (its columns), and the following values are split. The next product on that path splits the dimension that
it sums over (its rows). Its result is added up over the devices. Any split is correct, since XLA adds the missing
communication: the split only decides the speed. A user's own specs replace this method.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, body_of
from pathways.compiler.frontends.jax.pipeline.work import CUSTOM, JITS, REMATS, bytes_of

Ask = Callable[[int], int | None]
"""Returns the dimension of a parameter that the user splits; None: it is whole."""
_SAME = frozenset(
    {"convert_element_type", "copy", "copy_p", "reduce_precision", "stop_gradient", "sharding_constraint"}
)


@dataclass(frozen=True)
class _Value:
    """A parameter if `leaf` is not negative, with its dimensions as those of the argument; otherwise an activation."""

    leaf: int = -1
    dims: tuple[int, ...] = ()
    split: bool = False


@dataclass
class Split:
    """A split of the arguments over `model` devices. `dims[i]`: the dimension of argument i that is split.

    `reduced[id(eqn)]`: bytes that its forward adds up over the devices, loops counted as often as they run. `divided`:
    equations (by id) whose results are split.
    """

    model: int
    dims: dict[int, int] = field(default_factory=dict[int, int])
    reduced: dict[int, float] = field(default_factory=dict[int, float])
    divided: set[int] = field(default_factory=set[int])


def split_parameters(jaxpr: Any, data: frozenset[int], model: int, ask: Ask | None = None) -> Split:
    """Splits the parameters of a loss over `model` devices: as `ask` says, or Megatron's way."""
    walker = _Walker(Split(model), ask)
    body = body_of(jaxpr)
    values = [
        _Value() if i in data else _Value(i, tuple(range(len(getattr(v.aval, "shape", ())))))
        for i, v in enumerate(body.invars)
    ]
    walker.walk(jaxpr, values)
    return walker.found


class _Walker:
    def __init__(self, found: Split, ask: Ask | None) -> None:
        self.found = found
        self.ask = ask

    def walk(self, jaxpr: Any, given: Sequence[_Value]) -> tuple[list[_Value], float]:
        """Returns the results of a body, and the bytes that it adds up."""
        body = body_of(jaxpr)
        env: dict[Any, _Value] = dict(zip(body.invars, given, strict=True))
        total = 0.0
        for eqn in body.eqns:
            read = [_Value() if isinstance(a, compat.Literal) else env.get(a, _Value()) for a in eqn.invars]
            made, reduced = self.equation(eqn, read)
            env.update(zip(eqn.outvars, made, strict=True))
            if reduced:
                self.found.reduced[id(eqn)] = reduced
            if any(v.split for v in made):
                self.found.divided.add(id(eqn))
            total += reduced
        return [_Value() if isinstance(a, compat.Literal) else env.get(a, _Value()) for a in body.outvars], total

    def equation(self, eqn: Eqn, read: list[_Value]) -> tuple[list[_Value], float]:
        name: str = eqn.primitive.name
        if name == "dot_general":
            made, reduced = self._product(eqn, read)
            return [made], reduced
        if name == "scan":
            return self._loop(eqn, read)
        if name in JITS | REMATS | CUSTOM:
            for inner in compat.sub_jaxprs(eqn):
                if len(body_of(inner).invars) == len(read):
                    return self.walk(inner, read)
        if name in _SAME and read:
            return [read[0]], 0.0
        if read and read[0].leaf >= 0 and len(eqn.outvars) == 1 and (moved := _moved(eqn, read[0])) is not None:
            return [moved], 0.0
        return [_Value(split=any(v.split for v in read))] * len(eqn.outvars), 0.0

    def _loop(self, eqn: Eqn, read: list[_Value]) -> tuple[list[_Value], float]:
        consts, carried = compat.scan_counts(eqn)
        carry_end = consts + carried
        iteration = [v if v.leaf < 0 else _Value(v.leaf, v.dims[1:]) for v in read[carry_end:]]
        carry = [_Value(split=v.split) for v in read[consts:carry_end]]
        made, reduced = self.walk(eqn.params["jaxpr"], [*read[:consts], *carry, *iteration])
        return [_Value(split=v.split) for v in made], reduced * eqn.params["length"]

    def _product(self, eqn: Eqn, read: list[_Value]) -> tuple[_Value, float]:
        contracted, batched = eqn.params["dimension_numbers"]
        weights = [i for i in (0, 1) if read[i].leaf >= 0 and len(read[i].dims) > 1]
        either = _Value(split=any(v.split for v in read if v.leaf < 0))
        if len(weights) != 1:
            return either, 0.0
        side = weights[0]
        weight, aval = read[side], eqn.invars[side].aval
        summed = tuple(contracted[side])
        made = [d for d in range(len(weight.dims)) if d not in summed and d not in batched[side]]
        chosen = self._choose(weight, aval, summed if read[1 - side].split else made)
        if chosen is None:
            return either, 0.0
        if chosen in [weight.dims[d] for d in summed]:
            return _Value(), float(sum(bytes_of(v.aval) for v in eqn.outvars))
        return _Value(split=True), 0.0

    def _choose(self, weight: _Value, aval: Any, wanted: Sequence[int]) -> int | None:
        """Returns the dimension of the argument that is split. The first user of a parameter decides."""
        leaf, found = weight.leaf, self.found
        if self.ask is not None:
            dimension = self.ask(leaf)
            if dimension is not None:
                found.dims[leaf] = dimension
            return dimension
        if leaf not in found.dims:
            fits = [d for d in wanted if weight.dims[d] >= 0 and aval.shape[d] % found.model == 0]
            if not fits:
                return None
            found.dims[leaf] = weight.dims[fits[0]]
        return found.dims[leaf]


def _moved(eqn: Eqn, value: _Value) -> _Value | None:
    """Returns a parameter after an operation that only moves its dimensions; None if it is no longer recognizable."""
    name: str = eqn.primitive.name
    shape, before = tuple(eqn.outvars[0].aval.shape), tuple(eqn.invars[0].aval.shape)
    match name:
        case "transpose":
            return _Value(value.leaf, tuple(value.dims[int(d)] for d in eqn.params["permutation"]))
        case "squeeze":
            removed = {d % len(before) for d in eqn.params["dimensions"]}
            return _Value(value.leaf, tuple(d for i, d in enumerate(value.dims) if i not in removed))
        case "slice" | "dynamic_slice" | "gather":
            if len(shape) != len(before) or name == "gather":
                return None
            same = [a == b for a, b in zip(shape, before, strict=True)]
            return _Value(value.leaf, tuple(d if s else -1 for d, s in zip(value.dims, same, strict=True)))
        case "mul" | "add" | "sub" | "div" if shape == before and math.prod(shape) > 1:
            other = tuple(getattr(eqn.invars[1].aval, "shape", ()))
            return value if other == () else None
        case _:
            return None
