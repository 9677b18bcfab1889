"""Translates errors that JAX raises while it traces a user's function. The user sees an error code, the source line and
advice in place of JAX's own message.

`trace.py` and the command line call it. JAX's messages are recognized by class and text. If a newer JAX changes a text,
the error is not lost: JAX's own error is raised.
"""

import contextlib
import difflib
import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import jax

from pathways.compiler.errors import AmbiguousSharding, NotDivisible, TooFewDimensions, UnknownAxis
from pathways.dialect.diagnostics import Diagnostic, Where
from pathways.dialect.user_line import where_of_exception

_AXIS = re.compile(r"Resource axis: (?P<axis>\S+) of (?P<spec>.*?) is not found in mesh: \((?P<axes>.*?)\)", re.DOTALL)
_MANUAL = re.compile(r"axis marked as manual \(frozenset\(\{(?P<axes>.*?)\}\)\).*?refers to (?P<axis>'\w+')", re.DOTALL)
_RANK = re.compile(
    r"One of (?P<what>.*?)(?: with pytree key path (?P<path>\S+))? is incompatible with its sharding annotation"
    r".*?spec=(?P<spec>\w+\(.*?\)).*?rank at least (?P<need>\d+), but was applied to a value of rank (?P<have>\d+)",
    re.DOTALL,
)
_UNBOUND = re.compile(r"unbound axis name: (?P<axis>\w+)")


_SEE = "to print it, use jax.debug.print('{}', x); to compute with it, keep it an array"

_UNTRACEABLE: tuple[tuple[type[Exception], str, str, str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "",
        "it uses the value of an array to decide what to do",
        "use jnp.where or lax.cond inside a placed function, or mark the argument in static_argnums",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "",
        "it reads the value of an array, which is not known while the program is traced",
        f"{_SEE}, or mark the argument in static_argnums",
    ),
    (
        jax.errors.TracerIntegerConversionError,
        "",
        "it uses the value of an array as a Python number: an index, or a count",
        "index jax.numpy arrays, loop with lax.fori_loop, or mark the argument in static_argnums",
    ),
    (
        jax.errors.UnexpectedTracerError,
        "",
        "a traced value was stored outside of the function that created it",
        "return all values from the functions of a program",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "",
        "it passes the value of an array to code that is not JAX",
        f"use jax.numpy in place of numpy; {_SEE}",
    ),
    (TypeError, "valid JAX type", "a value in it is not an array", "pass arrays as arguments and return arrays"),
    (TypeError, "Tracer.__format__", "it prints the value of an array, which is not known while it is traced", _SEE),
    (
        TypeError,
        "Shapes must be 1D sequences of concrete values",
        "a shape in it depends on the value of an array",
        "mark the argument in static_argnums, or give the array its maximum size, and mask it with jnp.where",
    ),
)
"""Known errors for functions that JAX cannot trace: the class, a part of its text, the meaning, and advice."""


def untraceable(error: Exception) -> tuple[str, str] | None:
    """Explains why JAX cannot trace a function, with advice; None for any other error."""
    text = str(error)
    known = ((why, advice) for cls, part, why, advice in _UNTRACEABLE if isinstance(error, cls) and part in text)
    return next(known, None)


def translate(error: Exception, where: Where | None, again: Callable[[], Any] | None = None) -> list[Diagnostic]:
    """Translates one of JAX's errors into diagnostics; returns no diagnostics for an unknown error.

    `where` is used if the traceback has no line of the user's. `again` repeats the call that failed.
    """
    line = where_of_exception(error) or where
    text = str(error)
    if type(error).__name__ == "IndivisibleError":
        found = [NotDivisible(value=v, have_=h, where=line) for v, h in _indivisible(_unfiltered(error, again))]
        return [*found] or [NotDivisible(value="a value", have_=text.splitlines()[0], where=line)]
    if type(error).__name__ == "ShardingTypeError":
        return [_ambiguous(text, line, _unfiltered(error, again))]
    if match := _RANK.search(text):
        return [_too_few_dimensions(match.groupdict(), line)]
    for pattern in (_AXIS, _MANUAL, _UNBOUND):
        if match := pattern.search(text):
            return [_unknown_axis(match.groupdict(), line, ordered=pattern is _AXIS)]
    return []


_KINDS = {"pjit arguments": "the argument", "pjit outputs": "the output"}


def _too_few_dimensions(found: dict[str, str], line: Where | None) -> TooFewDimensions:
    value = f"{_KINDS.get(found['what'], 'a value in ' + found['what'])} {found['path'] or ''}".strip()
    return TooFewDimensions(
        value=value, rank=int(found["have"]), least=int(found["need"]), spec=found["spec"], where=line
    )


def _unknown_axis(found: dict[str, str], line: Where | None, *, ordered: bool) -> UnknownAxis:
    """If `ordered`, JAX listed the axes in the order of the mesh, not as a set."""
    axis = found["axis"].strip("'\"")
    axes = re.findall(r"\w+", found.get("axes", ""))
    axes = axes if ordered else sorted(axes)
    near = difflib.get_close_matches(axis, axes, n=1, cutoff=0.5)
    advice = f'did you mean "{near[0]}"?' if near else "use an axis of the mesh, or name it when the mesh is made"
    have = f'"{axis}"' + (f" in {found['spec']}" if found.get("spec") else "")
    rule = f"one of {', '.join(axes)}" if axes else "an axis of a mesh that is bound here, as in jax.shard_map: none is"
    return UnknownAxis(axis=axis, have_=have, rule=rule, advice=advice, where=line)


def _unfiltered(error: Exception, again: Callable[[], Any] | None) -> Exception:
    """Repeats the call, and returns its error with JAX's own frames. Their locals show the values that JAX checked."""
    if again is None:
        return error
    config: Any = jax.config
    before: str = config.jax_traceback_filtering
    config.update("jax_traceback_filtering", "off")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the program's own output was already printed the first time
            again()
    except type(error) as repeated:
        return repeated
    finally:
        config.update("jax_traceback_filtering", before)
    return error


def _locals(error: Exception) -> Iterator[dict[str, Any]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_locals
        trace = trace.tb_next


def _indivisible(error: Exception) -> Iterator[tuple[str, str]]:
    """Yields every argument that does not divide, not only the first one, at which JAX stopped."""
    for scope in _locals(error):
        shardings, avals = scope.get("shardings"), scope.get("flat_avals")
        if shardings is None or avals is None:
            continue
        names = scope.get("names") or [""] * len(avals)
        for sharding, aval, name in zip(shardings, avals, names, strict=False):
            spec: Any = getattr(sharding, "spec", None)
            if spec is None:
                continue
            for i, (size, entry) in enumerate(zip(aval.shape, spec, strict=False)):
                axes = _axes(entry)
                parts = math.prod(sharding.mesh.shape[a] for a in axes)
                if size % parts:
                    have = f"dimension {i} of {list(aval.shape)} is {size}, over {' x '.join(axes)} = {parts} parts: "
                    have += f"{size} mod {parts} = {size % parts}; {size + -size % parts} is divisible"
                    yield f"the argument {name}" if name else "a value", have
        return


def _ambiguous(text: str, line: Where | None, error: Exception) -> AmbiguousSharding:
    """Lists candidate shardings with the bytes that each one moves, if JAX's frames show the operands."""
    first_line = text.strip().splitlines()[0]
    advice = "state it: jnp.einsum(..., out_sharding=P(...)), or first jax.sharding.reshard(x, P(...))"
    for scope in _locals(error):
        if {"lhs", "rhs", "dimension_numbers"} <= scope.keys():
            try:
                candidates = _candidates(scope["lhs"], scope["rhs"], scope["dimension_numbers"])
            except (AttributeError, TypeError, ValueError):  # operands of another kind: no candidates
                break
            if candidates:
                advice = "out_sharding=NamedSharding(mesh, SPEC), with SPEC one of\n" + "\n".join(candidates)
                return AmbiguousSharding(have_=first_line, advice=advice, where=line)
    return AmbiguousSharding(have_=first_line, advice=advice, where=line)


def _candidates(lhs: Any, rhs: Any, numbers: Any) -> list[str]:
    """Lists the shardings of a product over split dimensions: all-reduced, or scattered over one of its dimensions."""
    (lc, rc), (lb, rb) = numbers
    left, right = (getattr(v, "aval", v) for v in (lhs, rhs))
    contracted = next((left.sharding.spec[d] for d in lc if left.sharding.spec[d] is not None), None)
    axes = _axes(contracted)
    parts = math.prod(left.sharding.mesh.shape[a] for a in axes)
    kept = [(left, d) for d in (*lb, *(d for d in range(left.ndim) if d not in (*lb, *lc)))]
    kept += [(right, d) for d in range(right.ndim) if d not in (*rb, *rc)]
    shape: list[int] = [v.shape[d] for v, d in kept]
    spec: list[Any] = [v.sharding.spec[d] for v, d in kept]
    mesh = left.sharding.mesh
    local = math.prod(shape) * left.dtype.itemsize
    local //= math.prod(mesh.shape[a] for e in spec for a in _axes(e))
    once = local * (parts - 1) // parts
    found = [f"P({_written(spec)}): an all-reduce over {' x '.join(axes)}, {2 * once:,} bytes a device"]
    for i, entry in enumerate(spec):
        if entry is None and shape[i] % parts == 0:
            scattered = [*spec[:i], contracted, *spec[i + 1 :]]
            found.append(f"P({_written(scattered)}): a reduce-scatter over {' x '.join(axes)}, {once:,} bytes a device")
    return found


def _axes(entry: Any) -> list[str]:
    """Returns the axes of one dimension of a PartitionSpec."""
    listed = cast("tuple[Any, ...]", entry) if isinstance(entry, tuple) else (entry,)
    return [str(a) for a in listed if a is not None]


def _written(spec: list[Any]) -> str:
    return ", ".join(repr(e) for e in spec)
