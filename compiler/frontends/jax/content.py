"""Describes the content of a traced program, so that a later process can recognize an equal program before it is
lowered. `trace.py` calls it, and `pathways.api.kept_plans` names plans by it.

The description holds the equations with their parameters, types, source lines and scopes, the bytes of constants,
slices in the order of their numbers, JAX's settings, and the versions. A value of unknown kind, such as a Python
function or a user's primitive, has no content, and its program is compiled in every process. One thing is not seen:
a user's own lowering rule for one of JAX's primitives.
"""

import dataclasses
import enum
import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.devices import VirtualDevice, VirtualSlice
from pathways.dialect import jax_api
from pathways.dialect.versions import WRITER

Term: TypeAlias = Any
"""Nested tuples of texts, numbers and None. Different contents have terms with different `repr`."""
_AS_THEY_ARE = (type(None), bool, int, str, bytes)
_OURS, _JAXS = "pathways.", ("jax.", "jaxlib.", "_jax.")
_UNUSED = {
    "custom_jvp_call": {"jvp_jaxpr_fun"},
    "custom_vjp_call": {"fwd_jaxpr_thunk", "bwd", "out_trees"},
    "custom_vjp_call_jaxpr": {"fwd_jaxpr_thunk", "bwd", "out_trees"},
    "checkpoint": {"policy"},
}
"""Parameters that only differentiation reads. It is complete when a program is traced."""
_ADDRESS = " at 0x"


class NoContent(Exception):
    """A value whose content is not known."""


@dataclasses.dataclass(frozen=True)
class Content:
    """The digest of a program's content, and the slices that it names, in the order of their numbers."""

    digest: str
    slices: tuple[VirtualSlice, ...]
    settings: Term
    """JAX's settings during the trace (`settings_term`)."""
    has_arrays: bool
    """Whether it closes over arrays. They may change or be deleted, so its IR must be made at once."""


def content_of(jaxpr: Any, *others: Any) -> Content | None:
    """Describes a closed jaxpr and other values that decide the plan; None if the content of a part is not known."""
    terms = _Terms()
    try:
        settings, whole = settings_term(), (terms.of(jaxpr), terms.of(others), terms.slices())
    except NoContent:
        return None
    digest = digest_of_term((_COMPILER, settings, whole, terms.bodies, terms.lines))
    return Content(digest, tuple(terms.sorted_slices()), settings, terms.has_arrays)


def digest_of_term(term: Term) -> str:
    return hashlib.sha256(repr(term).encode()).hexdigest()


def term_of(value: Any) -> Term:
    """Describes a value. Raises NoContent."""
    return _Terms().of(value)


def _compiler() -> Term:
    """Describes the compiler itself: its versions, and the sizes and times of its files."""
    root = Path(__file__).resolve().parents[3]
    files = sorted(p for part in ("compiler", "dialect") for p in (root / part).rglob("*.py"))
    states = [(str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return tuple(WRITER.items()), digest_of_term(states)


_COMPILER = _compiler()
"""Read at import, since files may change while the process runs the old ones."""


def settings_term() -> Term:
    """Describes JAX's settings in this thread. Raises NoContent inside of a `jax.set_mesh`, or while JAX traces."""
    if not compat.has_no_mesh():
        raise NoContent
    stated = [(k, repr(v)) for k, v in jax_api.config.values.items() if "cache" not in k]
    context = compat.trace_context()
    now = cast("Any", context) if isinstance(context, tuple) else (context,)
    (eqn,) = jax_api.make_jaxpr(jax_api.lax.neg)(1.0).eqns  # its context holds settings of other context managers
    texts = [_plain_text(value) for value in now if type(value).__name__ != "AxisEnv"]  # the axes of a vmap around
    return sorted(stated), texts, [(name, _plain_text(value)) for name, value in compat.context_of(eqn)]


class _Terms:
    """Describes values of one program. Jaxprs, variables and slices get numbers in the order in which they are met."""

    def __init__(self) -> None:
        self.bodies: list[Term] = []
        self.has_arrays = False
        self._numbers: dict[int, int] = {}
        self._slices: dict[int, VirtualSlice] = {}
        self._avals: dict[int, Term] = {}
        self._contexts: dict[int, Term] = {}
        self.lines: list[Term] = []
        """The source lines of all equations, and the numbers of the lines of each call stack."""
        self._known_lines: dict[Any, int] = {}
        self._alive: list[Any] = []

    def sorted_slices(self) -> list[VirtualSlice]:
        return sorted(self._slices.values(), key=lambda s: s.number)

    def slices(self) -> Term:
        """Describes the slices, in the order in which they were met, with their order by number."""
        order = self.sorted_slices()
        return tuple((order.index(s), _slice(s, self)) for s in self._slices.values())

    def of(self, value: Any) -> Term:
        kind = cast("type[Any]", type(value))
        if kind in _AS_THEY_ARE:
            return value
        if kind in _KINDS:
            return _KINDS[kind](self, value)
        for base, describe in _BASES:
            if isinstance(value, base):
                return describe(self, value)
        if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
            return "jaxpr", self._body(value)
        module: str = kind.__module__ + "."
        known = (kind.__module__, kind.__qualname__)
        if dataclasses.is_dataclass(value) and module.startswith((_OURS, *_JAXS)):
            fields = dataclasses.fields(value)
            return (*known, *((f.name, self.of(getattr(value, f.name))) for f in fields))
        if hasattr(value, "__array__") and module.startswith(_JAXS):  # an array that is a literal of a jaxpr
            return _array(self, value)
        is_text = kind.__name__ in ("UnspecifiedValue", "AbstractMesh") and module.startswith(_JAXS)
        if is_text or module.startswith(("jaxlib.", "_jax.")):
            return *known, _plain_text(value)
        raise NoContent

    def _body(self, jaxpr: Any) -> int:
        """Describes a jaxpr once, and returns its number."""
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        consts = list(getattr(jaxpr, "consts", ()))
        key = id(jaxpr) if consts else id(inner)
        if key not in self._numbers:
            self._alive.append(jaxpr)
            term = self._described(inner, consts)
            self._numbers[key] = len(self.bodies)
            self.bodies.append(term)
        return self._numbers[key]

    def _described(self, inner: Any, consts: list[Any]) -> Term:
        names: dict[Any, int] = {}
        self.has_arrays = self.has_arrays or bool(consts)

        def bound(variable: Any) -> Term:
            names[variable] = len(names)
            return self._aval(variable.aval)

        def used(atom: Any) -> Term:
            if isinstance(atom, compat.Literal):
                return self._aval(atom.aval), self.of(atom.val)
            return names[atom]

        takes = [bound(v) for v in (*inner.constvars, *inner.invars)]
        eqns = [self._equation(e, used, bound) for e in inner.eqns]
        gives = [used(v) for v in inner.outvars]
        return (
            takes,
            len(inner.constvars),
            [self.of(c) for c in consts],
            eqns,
            gives,
            [self._told(v) for v in compat.debug_info_of(inner)],
        )

    def _equation(self, eqn: Any, used: Callable[[Any], Term], bound: Callable[[Any], Term]) -> Term:
        name: str = eqn.primitive.name
        unused = _UNUSED.get(name, ())
        params = [(k, self.of(v)) for k, v in eqn.params.items() if k not in unused]
        source = eqn.source_info
        return (
            _name_in_jax(eqn.primitive),
            [used(a) for a in eqn.invars],
            params,
            [bound(v) for v in eqn.outvars],
            sorted(map(str, eqn.effects)),
            str(source.name_stack),
            source.traceback and self._source(source.traceback),
            self._context(eqn),
        )

    def _source(self, traceback: Any) -> Term:
        self._alive.append(traceback)
        return compat.users_lines(traceback, self.lines, self._known_lines)

    def _context(self, eqn: Any) -> Term:
        """Describes the settings of an equation. Most equations share one object."""
        found = self._contexts.get(id(eqn.ctx))
        if found is None:
            self._alive.append(eqn.ctx)
            found = self._contexts[id(eqn.ctx)] = [(k, self.of(v)) for k, v in compat.context_of(eqn)]
        return found

    def _told(self, value: Any) -> Term:
        """Describes a part of JAX's debugging information: a text, or texts."""
        if isinstance(value, tuple):
            return list(map(str, cast("Any", value)))
        return str(value) if isinstance(value, str) else None

    def _aval(self, aval: Any) -> Term:
        """Describes the type of a variable. Many variables share a type object."""
        found = self._avals.get(id(aval))
        if found is None:
            self._alive.append(aval)
            found = self._avals[id(aval)] = self._type(aval)
        return found

    def _type(self, aval: Any) -> Term:
        kind = type(aval).__name__
        if kind == "AbstractToken":
            return kind
        if type(aval) is not jax_api.ShapedArray:
            raise NoContent
        more = [(n, _plain_text(getattr(aval, n, None))) for n in ("memory_space", "vma", "manual_axis_type")]
        sharding = self.of(getattr(aval, "sharding", None))
        made = self.of(compat.key_implementation(aval)) if compat.is_key(aval) else None
        return tuple(aval.shape), str(aval.dtype), made, bool(aval.weak_type), sharding, more

    def device(self, value: VirtualDevice) -> Term:
        self._slices.setdefault(value.slice.number, value.slice)
        return "device", list(self._slices).index(value.slice.number), value.position

    def mesh(self, value: Mesh) -> Term:
        grid, names = cast("Any", value.devices), cast("Any", value.axis_names)
        return "mesh", list(map(str, names)), grid.shape, _plain_text(value.axis_types), [self.of(d) for d in grid.flat]

    def named(self, value: NamedSharding) -> Term:
        more = _plain_text(getattr(value, "_logical_device_ids", None))
        return "named", self.of(value.mesh), self.of(value.spec), value.memory_kind, more


def _slice(value: VirtualSlice, terms: _Terms) -> Term:
    if value.island is not None:  # its islands are made for one program
        raise NoContent
    return len(value.devices), value.prefer, value.kind, value.topology, terms.of(value.where)


def _array(terms: _Terms, value: Any) -> Term:
    if isinstance(value, jax.Array):
        if compat.is_key(value):
            return "keys", terms.of(compat.key_implementation(value)), _array(terms, jax_api.key_data(value))
        if isinstance(value, jax_api.Tracer) or not value.is_fully_addressable or value.is_deleted():
            raise NoContent
        return "jax", bool(getattr(value, "weak_type", False)), _array(terms, np.asarray(value))
    data = np.ascontiguousarray(value)
    if data.dtype.hasobject:
        raise NoContent
    raw: Any = data.reshape(-1).view(np.uint8)
    return type(value).__name__, str(data.dtype), np.shape(value), hashlib.sha256(raw).hexdigest()


def _number(_: _Terms, value: Any) -> Term:
    """Describes a number of a subclass, as JAX's literals."""
    return *_known(type(value)), str(getattr(value, "dtype", "")), np.asarray(value).tobytes()


def _sequence(terms: _Terms, value: Any) -> Term:
    return *_known(cast("Any", type(value))), *map(terms.of, value)


def _mapping(terms: _Terms, value: Mapping[Any, Any]) -> Term:
    return *_known(cast("Any", type(value))), *((terms.of(k), terms.of(v)) for k, v in value.items())


def _set(terms: _Terms, value: Any) -> Term:
    return "set", *sorted(map(repr, map(terms.of, value)))


def _enum(_: _Terms, value: enum.Enum) -> Term:
    return *_known(type(value)), value.name


def _class(_: _Terms, value: type) -> Term:
    return "class", *_known(value)


def _known(kind: Any) -> tuple[str, str]:
    """Returns the names of a class of Python, NumPy, JAX or this project. Raises NoContent for other classes."""
    if not f"{kind.__module__}.".startswith(("builtins.", "numpy.", "ml_dtypes.", _OURS, *_JAXS)):
        raise NoContent
    return kind.__module__, kind.__qualname__


def _function(_: _Terms, value: FunctionType) -> Term:
    """Describes a function of JAX that is an attribute of its module, as those that make random bits."""
    module, name = value.__module__, value.__qualname__
    if not module.startswith("jax.") or getattr(sys.modules.get(module), name, None) is not value:
        raise NoContent
    return "function", module, name


def _partition(terms: _Terms, value: PartitionSpec) -> Term:
    return "spec", *map(terms.of, cast("Any", value)), str(value)


def _plain_text(value: Any) -> str:
    """Returns the text of a value. Raises NoContent for an object whose text is its address."""
    text = repr(value)
    if _ADDRESS in text:
        raise NoContent
    return text


_KINDS: dict[type, Callable[[_Terms, Any], Term]] = {
    float: lambda _, v: ("float", v.hex()),
    complex: lambda _, v: ("complex", v.real.hex(), v.imag.hex()),
    VirtualDevice: _Terms.device,
    Mesh: _Terms.mesh,
    NamedSharding: _Terms.named,
    PartitionSpec: _partition,
}
_BASES: tuple[tuple[Any, Callable[[_Terms, Any], Term]], ...] = (
    (enum.Enum, _enum),
    (np.dtype, lambda _, v: ("dtype", str(v))),
    ((int, float, complex), _number),
    ((np.ndarray, np.generic, jax.Array), _array),
    (SingleDeviceSharding, lambda t, v: ("single", *map(t.of, v.device_set), v.memory_kind)),
    ((tuple, list), _sequence),
    (dict, _mapping),
    ((set, frozenset), _set),
    (type, _class),
    (FunctionType, _function),
)


_primitives: dict[int, tuple[str, Any]] = {}
"""JAX's own primitives by identity: their names in JAX's modules."""


def _name_in_jax(primitive: Any) -> str:
    """Returns the name of a primitive of JAX, which lowers it in the same way in each process. Raises NoContent."""
    if id(primitive) not in _primitives:
        for module in [m for name, m in list(sys.modules.items()) if name.startswith("jax.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, compat.Primitive):
                    _primitives.setdefault(id(value), (f"{value.name} {name}", value))
    if id(primitive) not in _primitives:
        raise NoContent
    return _primitives[id(primitive)][0]
