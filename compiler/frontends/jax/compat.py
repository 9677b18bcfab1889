# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Wraps JAX internals for the front end; the interface is the same on jax 0.10 to 0.12.

The front end uses JAX internals only through this module. The reason for each name, and its replacement:

* jaxprs: since 0.12 a closed jaxpr *is* a jaxpr; `JaxBody` hides the difference. `jax.extend.core` has the classes, but
  not how consts are attached.
* `scan` has `num_consts`/`num_carry` in 0.10 and `ft_in`/`ft_out` since then: `scan_counts`.
* user frames of an equation: `jax._src.source_info_util.user_frames`; without it, errors would lack the user's line.
  `is_user_filename` and `raw_frame_to_frame` read each frame of a program once; `user_frames` is the replacement.
* `dtype._impl` has the functions of typed keys. Without it, programs with such keys have no content (content.py).
* `UNSPECIFIED` shardings in jit equations have no public name; they are recognized by the name of their class.
* `pytype_aval_mappings` has the abstract value of each type that JAX accepts as an array; there is no public interface.
* `jax.interpreters.xla.canonicalize_dtype_handlers` is public: it converts such a value if JAX needs the data.
* `dispatch_registry` is how `jax.device_get` flattens typed keys, which have no `__array__`. `jax.jit` uses it for
  arguments from the second call on.
* `jax.extend.source_info_util.user_context` binds an equation again under its own source line.
* `jax._src.config.trace_context`: all settings that affect the result of a trace; `jax.jit` keys its traces by it.
  The replacement is `jax_enable_x64` alone, which decides every element type.
* `jax._src.core.trace_state_clean`: whether JAX is tracing. `jax.sharding.get_mesh` raises an error then, but is slow.
* `jax._src.interpreters.pxla._discharge_internal_refs` is how `jax.jit` turns mutable arrays that a function makes into
  values. Without it they stay as they are, in one computation.
* `jax._src.dispatch.runtime_tokens` is what `jax.effects_barrier` waits for. Without it, the barrier does not wait for
  programs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias, cast

import jax
import jax.extend.core as jex_core
import jax.extend.source_info_util as jex_source
import jax.interpreters.xla as jax_xla
from jax._src import config as _config
from jax._src import core as _core
from jax._src import dispatch as _dispatch_any
from jax._src import source_info_util as _source
from jax._src import tree_util as _tree_util
from jax._src.interpreters import pxla as _pxla_any

from pathways.dialect import jax_api
from pathways.dialect.diagnostics import Where
from pathways.dialect.user_line import PACKAGE_ROOTS, innermost_users

Aval: TypeAlias = Any
Eqn: TypeAlias = Any
Var: TypeAlias = Any
Atom: TypeAlias = Any

_any_jax: Any = jax
_jex_source: Any = jex_source
_jax_xla: Any = jax_xla
_core_any: Any = _core
_dispatch: Any = _dispatch_any
_pxla: Any = _pxla_any
_source_any: Any = _source
_tree_util_any: Any = _tree_util
for _root in PACKAGE_ROOTS:
    _jex_source.register_exclusion(_root)


def _trace_context() -> Any:
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


trace_context: Callable[[], Any] = getattr(_config, "trace_context", _trace_context)
"""Returns the settings of JAX in this thread that affect the result of a trace; hashable."""


def mesh_around() -> Any:
    """Returns the mesh of the `jax.set_mesh` around the call, which may be empty; None while JAX traces."""
    try:
        return jax_api.get_mesh()
    except ValueError:
        return None


def has_no_mesh() -> bool:
    """Whether there is no `jax.set_mesh` around the call; false while JAX traces."""
    mesh = mesh_around()
    return mesh is not None and mesh.empty


_has_settings = trace_context is not _trace_context
is_plain: Callable[[], bool] = getattr(_core, "trace_state_clean", has_no_mesh) if _has_settings else has_no_mesh
"""Whether JAX is not tracing, and there is no `jax.set_mesh` around the call. `trace_context` must have been compared
with that of a call without one."""
Literal: Any = jex_core.Literal
Primitive: Any = jex_core.Primitive
DropVar: Any = jex_core.DropVar


@dataclass(frozen=True)
class JaxBody:
    """A jaxpr with its constants: `constvars[i]` holds `consts[i]`."""

    constvars: list[Var]
    consts: list[Any]
    invars: list[Var]
    eqns: list[Eqn]
    outvars: list[Atom]


def body_of(jaxpr: Any) -> JaxBody:
    """Returns the parts of a jaxpr, open or closed."""
    consts = list(getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    constvars = list(inner.constvars)
    invars = list(inner.invars)
    if not consts and constvars:  # the callers of an open jaxpr pass these as operands
        invars, constvars = constvars + invars, []
    return JaxBody(constvars, consts, invars, list(inner.eqns), list(inner.outvars))


def with_equations(jaxpr: Any, eqns: list[Eqn], outvars: list[Atom]) -> Any:
    """Returns a copy of a jaxpr, open or closed, with other equations and results."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    made = inner.replace(eqns=eqns, outvars=outvars)
    return made if inner is jaxpr else jaxpr.replace(jaxpr=made)


def effects_of(jaxpr: Any) -> bool:
    """Whether a jaxpr has an effect, at any depth."""
    return any(eqn.effects for eqn in body_of(jaxpr).eqns)


def host_callbacks(lowered: Any) -> tuple[Callable[..., Any], ...]:
    """Returns the Python functions that a lowered computation calls, by their index in its module.

    JAX has no public API for them.
    """
    return tuple(lowered._lowering.compile_args.get("host_callbacks") or ())


def is_ordered(effect: Any) -> bool:
    return "ordered" in type(effect).__name__.lower() and "unordered" not in str(effect).lower()


def sub_jaxprs(eqn: Eqn) -> Iterator[Any]:
    """Yields all jaxprs in an equation's parameters."""
    for value in eqn.params.values():
        for item in cast("Sequence[Any]", value) if isinstance(value, tuple | list) else (value,):
            if (hasattr(item, "eqns") and hasattr(item, "invars")) or (
                hasattr(item, "jaxpr") and hasattr(item.jaxpr, "eqns")
            ):
                yield item


def scan_counts(eqn: Eqn) -> tuple[int, int]:
    """Returns the number of loop constants and of carried values of a scan."""
    params = eqn.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def func_source(jaxpr: Any) -> str:
    """Returns the traced function and its definition, `step at model.py:3`; empty if JAX does not know it."""
    info = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    return str(getattr(info, "func_src_info", "") or "")


def where_of_equation(eqn: Eqn) -> Where | None:
    """Returns the user's line that made an equation."""
    frames = _source_any.user_frames(eqn.source_info.traceback)
    return innermost_users(Where(f.file_name, f.start_line, f.function_name) for f in frames)


_has_raw_frames = all(hasattr(_source, name) for name in ("is_user_filename", "raw_frame_to_frame"))


def users_lines(traceback: Any, lines: list[Any], known: dict[Any, Any]) -> int:
    """Adds file, function and position of each of the user's frames to `lines`, once, and returns their number there.

    `known` holds what was added before.
    """
    if not _has_raw_frames:
        lines.append([tuple(frame) for frame in _source_any.user_frames(traceback)])
        return len(lines) - 1
    codes, places = traceback.raw_frames()
    key = ("stack", *map(id, codes), *places)
    if key not in known:
        numbers: list[int] = []
        for frame in zip(codes, places, strict=True):
            at = id(frame[0]), frame[1]
            if at not in known:
                known[at] = -1
                if _source_any.is_user_filename(frame[0].co_filename):
                    known[at] = len(lines)
                    lines.append(tuple(_source_any.raw_frame_to_frame(*frame)))
            if known[at] >= 0:
                numbers.append(known[at])
        known[key] = len(lines)
        lines.append(numbers)
    return known[key]


def context_of(eqn: Eqn) -> list[tuple[str, Any]]:
    """Returns the settings under which an equation is applied, by name."""
    names = [name for name in getattr(type(eqn.ctx), "__slots__", ()) if name not in ("configs", "__weakref__")]
    return [(name, getattr(eqn.ctx, name, None)) for name in names]


def debug_info_of(jaxpr: Any) -> list[Any]:
    """Returns what JAX knows of the names of a function, its arguments and its results."""
    info = getattr(jaxpr, "debug_info", None)
    return [getattr(info, name, None) for name in ("traced_for", "func_src_info", "arg_names", "result_paths")]


def scope_of_equation(eqn: Eqn) -> str:
    """Returns the named scopes of an equation, `Model/Block_3`. flax and haiku use them for module names."""
    return str(eqn.source_info.name_stack)


def is_unspecified(sharding: Any) -> bool:
    return sharding is None or type(sharding).__name__ == "UnspecifiedValue"


def bind(eqn: Eqn, values: Sequence[Any]) -> list[Any]:
    """Applies an equation to values, under its own source line, as `jax.core.eval_jaxpr` does."""
    params = eqn.primitive.get_bind_params(eqn.params)
    name_stack = _source_any.current_name_stack() + eqn.source_info.name_stack
    with _jex_source.user_context(eqn.source_info.traceback, name_stack=name_stack), eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def computed_at_once() -> Any:
    """Returns a context in which operations on known arrays are computed at once, and not traced."""
    return _any_jax.ensure_compile_time_eval()


def as_function(jaxpr: Any) -> Callable[..., list[Any]]:
    """Returns a closed jaxpr as a function of its arguments."""
    return jex_core.jaxpr_as_fun(jaxpr)


def traced_jaxpr(function: Callable[..., Any], *args: Any) -> Any:
    return jax_api.make_jaxpr(function)(*args)


def aval_of(value: Any) -> Aval:
    return jax_api.typeof(value)


def is_concrete(value: Any) -> bool:
    """Whether a value is a JAX array with data, not a traced one."""
    return isinstance(value, jax.Array) and not isinstance(value, jax_api.Tracer)


def is_ref(value: Any) -> bool:
    """Whether a value is a mutable array (`jax.new_ref`), not a traced one."""
    return isinstance(value, jax_api.Ref) and not isinstance(value, jax_api.Tracer)


def without_refs(jaxpr: Any) -> Any:
    """Returns a closed jaxpr with values in place of the mutable arrays that the given jaxpr makes."""
    discharge = getattr(_pxla, "_discharge_internal_refs", None)
    has_refs = any(type(e).__name__ == "InternalMutableArrayEffect" for e in jaxpr.effects)
    return discharge(jaxpr) if has_refs and discharge is not None else jaxpr


def is_key(aval: Aval) -> bool:
    """Whether an abstract value is an array of typed PRNG keys (or another extended type)."""
    return jax_api.dtypes.issubdtype(aval.dtype, jax_api.dtypes.extended)


def key_implementation(keyed: Any) -> Any:
    """Returns the functions that make random bits from keys, of an array of keys or its type."""
    return getattr(keyed.dtype, "_impl", keyed.dtype)


def key_data_aval(aval: Aval) -> jax.ShapeDtypeStruct:
    """Returns the type in which an array of keys is stored."""
    return jax_api.eval_shape(jax_api.key_data, struct(aval))


def struct(aval: Aval) -> jax.ShapeDtypeStruct:
    """Returns an abstract value without its sharding."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=bool(getattr(aval, "weak_type", False)))


def narrowed(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Returns the type as JAX sees it in this thread: if `jax_enable_x64` is off, 64 bits become 32."""
    if is_key(struct):
        return struct
    return struct.update(dtype=jax_api.dtypes.canonicalize_dtype(struct.dtype))


def as_literal_value(atom: Atom) -> Any:
    return atom.val


@dataclass(frozen=True, eq=False)
class OneEqn:
    """A jaxpr of a single equation, with the attributes that this front end reads."""

    eqns: list[Eqn]
    invars: list[Var]
    outvars: list[Atom]
    constvars: tuple[Var, ...] = ()
    consts: tuple[Any, ...] = ()


def one_eqn_jaxpr(eqn: Eqn) -> OneEqn:
    """Wraps `eqn` as a function of its operands, literals included."""
    invars = [variable(a.aval) for a in eqn.invars]
    return OneEqn([eqn.replace(invars=invars)], invars, list(eqn.outvars))


def array_aval(shape: tuple[int, ...], dtype: Any, *, weak_type: bool = False) -> Aval:
    return jax_api.ShapedArray(shape, dtype, weak_type=weak_type)


def variable(aval: Aval) -> Var:
    """Makes a variable that belongs to no jaxpr yet."""
    make: Any = jex_core.Var
    return make(aval)


def take_for_arrays(kind: type, fetch: Callable[[Any], Any]) -> None:
    """Registers a class whose objects JAX accepts as arrays.

    JAX traces them by `shape`, `dtype` and `weak_type`, and computes with the result of `fetch`.
    """

    def aval(value: Any) -> Aval:
        return jax_api.ShapedArray(value.shape, value.dtype, weak_type=value.weak_type)

    def fetched(value: Any) -> tuple[tuple[Any], None]:
        return (fetch(value),), None

    def only(_: None, children: Iterable[Any]) -> Any:
        return next(iter(children))

    _core_any.pytype_aval_mappings[kind] = aval
    _jax_xla.canonicalize_dtype_handlers[kind] = fetch
    _tree_util_any.dispatch_registry.register_node(kind, fetched, only)


class _EffectsToken:
    """A token that `jax.effects_barrier` waits for, like the token of a computation with effects."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self.block_until_ready = wait


def add_to_effects_barrier(key: object, wait: Callable[[], object]) -> None:
    """Makes the next `jax.effects_barrier` of this thread call `wait`, once for each key."""
    tokens: Any = getattr(_dispatch, "runtime_tokens", None)
    if tokens is not None:
        tokens.set_output_runtime_token(key, _EffectsToken(wait))


_DISPATCH = ("jax._src.pjit", "jax._src.shard_map")


def is_dispatch(frame: FrameType | None) -> bool:
    """Whether a frame is JAX's dispatch code, which reads an argument's devices to compute there."""
    return frame is not None and frame.f_globals.get("__name__") in _DISPATCH
