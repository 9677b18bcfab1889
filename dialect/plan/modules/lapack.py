"""Checks the array shapes of LAPACK custom calls in a module for CPU. LAPACK itself does not check them, and would
write beyond its buffers. `operations.py` calls it.

The native functions receive addresses, and derive the shape of every array from the first operand. So each call must
have the shapes that JAX emits.

In the tables a letter is one dimension, after the batch dimensions that all arrays share. `k` is the smaller of `m` and
`n`, `d` is `n - 1`, and `t` is at most the smaller one.
"""

from collections.abc import Sequence
from typing import Any

from pathways.dialect.bare_mlir import Operation, bare_ir
from pathways.dialect.plan.modules.stated_module import Refused
from pathways.dialect.sharding import Shape

_SHAPES = {
    "gees": "nn -> nn nn n - -",
    "geev": "nn -> n nn nn -",
    "gehrd": "nn -> nn d -",
    "geqp3": "mn n -> mn n k",
    "geqrf": "mn -> mn k",
    "gesdd": "mn -> mn k mu vn -",
    "gesvd": "mn -> mn k mu vn -",
    "getrf": "mn -> mn k -",
    "gtsv": "n n n nb -> n n n nb -",
    "orgqr": "mn t -> mn",
    "ormqr": "ac t mn -> mn",
    "potrf": "nn -> nn -",
    "syevd": "nn -> nn n -",
    "sytrd": "nn -> nn n d d -",
    "trsm": "aa mn -> mn",
}
_OF_REALS = {"gees": "nn -> nn nn n n - -", "geev": "nn -> n n nn nn -"}
_COMPLEX = {"heevd": "syevd", "hetrd": "sytrd", "ungqr": "orgqr", "unmqr": "ormqr"}
_ALL, _SOME, _NONE, _LEFT = (ord(c) for c in "ASNL")


def check_lapack(operation: Operation, target: str) -> None:
    """Raises Refused if operands and results do not have the shapes that `target` needs."""
    kind, name = target[len("lapack_")], target[len("lapack_") + 1 : -len("_ffi")]
    name = _COMPLEX.get(name, name)
    described = _OF_REALS.get(name, _SHAPES[name]) if kind in "sd" else _SHAPES[name]
    takes, gives = (side.split() for side in described.split("->"))
    operands, results = _shapes(operation.operands), _shapes(operation.results)
    if len(operands) != len(takes) or len(results) != len(gives):
        raise Refused(f"calls {target} with {len(operands)} arrays for {len(results)}")
    batch = operands[0][: len(operands[0]) - len(takes[0])]
    sizes = dict[str, int]()
    for shape, symbols in zip(operands, takes, strict=True):
        if len(shape) == len(batch) + len(symbols):
            sizes |= zip(symbols, shape[len(batch) :], strict=True)
    _complete(sizes, _config(operation), name)
    for shape, symbols in zip([*operands, *results], [*takes, *gives], strict=True):
        wanted = (*batch, *(sizes.get(c, -1) for c in symbols if c != "-"))
        if shape != wanted:
            raise Refused(f"calls {target} with an array of {list(shape)} where it needs {list(wanted)}")


def _complete(sizes: dict[str, int], config: dict[str, int], name: str) -> None:
    """Adds the dimensions that are derived from others, and from the configuration of the call."""
    m, n = sizes.get("m", sizes.get("n", -1)), sizes.get("n", -1)
    sizes |= {"k": min(m, n), "d": n - 1}
    if name in ("gesdd", "gesvd"):
        whole = config.get("mode") != _SOME
        if config.get("mode") not in (_ALL, _SOME, _NONE):
            raise Refused(f"calls {name} in a mode that JAX does not use")
        sizes |= {"u": m if whole else min(m, n), "v": n if whole else min(m, n)}
    if name in ("trsm", "ormqr"):
        left = config.get("side") == _LEFT if name == "trsm" else bool(config.get("left"))
        sizes["a"] = m if left else n
    if name in ("orgqr", "ormqr") and sizes.get("t", 0) > min(sizes.get("a", m), sizes.get("c", n)):
        raise Refused(f"calls {name} with {sizes['t']} reflectors, more than its matrix has")
    if name == "gees" and config.get("sort") != _NONE:
        raise Refused("calls gees to sort by a function that it does not have")


def _shapes(values: Sequence[Any]) -> list[Shape]:
    return [tuple(v.type.shape) for v in values]


def _config(operation: Operation) -> dict[str, int]:
    """Reads the integers of the call's configuration, from JAX's attribute or StableHLO's; both may not be present."""
    found = [a for a in ("mhlo.backend_config", "backend_config") if a in operation.attributes]
    configs = [c for a in found if isinstance(c := operation.attributes[a], bare_ir.DictAttr)]
    if len(configs) > 1:
        raise Refused("has a custom call with two configurations")
    numbers = (bare_ir.IntegerAttr, bare_ir.BoolAttr)
    return {named.name: int(named.attr.value) for c in configs for named in c if isinstance(named.attr, numbers)}
