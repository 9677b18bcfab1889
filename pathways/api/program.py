"""`pw.program`: a Python function of pytrees becomes one program over virtual devices."""

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import jax

from pathways.api.array import Array
from pathways.api.process import COMPILING, process
from pathways.api.stages import Compiled, Lowered
from pathways.compiler.errors import BadArguments
from pathways.compiler.frontend import compat
from pathways.compiler.frontend.caller import caller
from pathways.compiler.frontend.meshes import ambient
from pathways.compiler.frontend.trace import trace
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.jax_api import Tracer, tree_util
from pathways.runtime.pjrt import lowering_platform

ExampleArgs = Sequence[Any] | Callable[[], Sequence[Any]] | None


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class _Call:
    """Arguments bound to parameters. `static` are (place, type, value): 2, 2.0 and True are different programs.

    `places` are positions among all values bound; `parameters` says which parameter each dynamic value is of.
    """

    static: tuple[tuple[int, type, Any], ...]
    dynamic: tuple[Any, ...]
    places: tuple[int, ...]
    parameters: tuple[int, ...]
    names: tuple[str, ...]
    keywords: tuple[str, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.static, self.places, self.names, self.keywords

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of the dynamic arguments alone."""
        total = len(self.static) + len(self.places)
        positional = total - len(self.keywords)

        def of_dynamic(*dynamic: Any) -> Any:
            values = {place: value for place, _, value in self.static}
            values |= dict(zip(self.places, dynamic, strict=True))
            full = [values[i] for i in range(total)]
            return function(*full[:positional], **dict(zip(self.keywords, full[positional:], strict=True)))

        return of_dynamic


class Program:
    """A function that is traced once per signature, compiled, and run on the devices of this process.

    Calling it gives `pw.Array`s at once. `lower(*args)` stops after tracing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        example_args: ExampleArgs = None,
        donate_argnums: int | Sequence[int] = (),
        static_argnums: int | Sequence[int] = (),
    ) -> None:
        if not callable(function):
            have = f"a {type(function).__name__}"
            raise self._refuse("pw.program takes a function", have, "a function of pytrees of arrays")
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._example = example_args
        self._signature = _signature(function)
        self._donate = self._numbers("donate_argnums", donate_argnums)
        self._static = self._numbers("static_argnums", static_argnums)
        if self._donate & self._static:
            have = f"argument {min(self._donate & self._static)} in both"
            raise self._refuse("an argument cannot be donated and static", have, "disjoint argnums")
        parameters = self._signature.parameters
        simple = not self._static and all(p.kind in _POSITIONAL for p in parameters.values())
        self._plain = (tuple(range(len(parameters))), tuple(parameters)) if simple else None
        """Places and names of the arguments of most calls: all positional, nothing static."""
        self._methods: weakref.WeakKeyDictionary[Any, Program] = weakref.WeakKeyDictionary()
        self._compiled: dict[Any, Compiled] = {}
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.where = Where(code.co_filename, code.co_firstlineno, self.name) if code is not None else caller()

    @property
    def example_args(self) -> tuple[Any, ...]:
        """The arguments to compile for when nobody gives any. Raises PWC0104 where the program has none."""
        example = self._example() if callable(self._example) else self._example
        if example is None:
            raise PathwaysError(
                BadArguments(
                    problem=f"program {self.name} says nothing of its arguments",
                    have_="pw.program without example_args",
                    rule="a tuple of arrays or jax.ShapeDtypeStructs, or a function that returns it",
                    advice=f"pw.program({self.name}, example_args=(jax.ShapeDtypeStruct((8,), 'float32'),))",
                    where=self.where,
                )
            )
        return tuple(example)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._bind(args, kwargs)
        leaves, tree = tree_util.tree_flatten(call.dynamic)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self.function(*args, **kwargs)  # called by another program, or under a transformation: a part of it
        key = (call.key, tree, ambient(), compat.trace_context(), *map(self._key, leaves))
        compiled = self._compiled.get(key)
        if compiled is None:
            with COMPILING:
                compiled = self._compiled.get(key)
                if compiled is None:
                    compiled = self._compiled[key] = self._lower(process().platform, call).compile()
        return compiled.unflatten(compiled.run_flat(leaves))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces the program for these arguments (arrays or `jax.ShapeDtypeStruct`s).

        Raises coded errors at the user's line for what a program cannot contain.
        """
        return self.lower_for(process().platform, *args, **kwargs)

    def lower_for(self, platform: str, *args: Any, **kwargs: Any) -> Lowered:
        """As `lower`, for cpu, gpu or tpu, whether there is one here or not."""
        return self._lower(platform, self._bind(args, kwargs))

    def _lower(self, platform: str, call: "_Call") -> Lowered:
        flat, tree = tree_util.tree_flatten_with_path(call.dynamic)
        leaf_names: list[str] = [call.names[path[0].idx] + tree_util.keystr(path[1:]) for path, _ in flat]
        structs = [self._struct(name, leaf) for name, (_, leaf) in zip(leaf_names, flat, strict=True)]
        donated = frozenset(i for i, (path, _) in enumerate(flat) if call.parameters[path[0].idx] in self._donate)
        with COMPILING:
            traced = trace(
                call.function(self.function),
                tree_util.tree_unflatten(tree, structs),
                leaf_names,
                donated,
                name=self.name,
                platform=platform,
                lowering_platform=lowering_platform(platform),
                where=self.where,
            )
        return Lowered(traced.emitted, tree, traced.out_tree)

    def __get__(self, instance: Any, owner: type | None = None) -> "Program":
        """A program made of a method: bound to its object, one an object."""
        if instance is None:
            return self
        if instance not in self._methods:
            bound = functools.partial(self.function, weakref.proxy(instance))
            functools.update_wrapper(bound, self.function)
            bound.__dict__.pop("__wrapped__")  # its signature is its own: without self
            moved = ({n - 1 for n in numbers} for numbers in (self._donate, self._static))
            donate, static = (tuple(sorted(numbers)) for numbers in moved)
            self._methods[instance] = Program(
                bound, example_args=self._example, donate_argnums=donate, static_argnums=static
            )
        return self._methods[instance]

    def _numbers(self, what: str, argnums: int | Sequence[int]) -> frozenset[int]:
        """Numbers of parameters; negative ones count from the end."""
        parameters = self._signature.parameters.values()
        count = len(parameters)
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
            count = 1 << 16
        given = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for number in given:
            if not -count <= number < count:
                raise self._refuse(f"{what} names no argument", f"{what}={given}", f"numbers below {count}")
        return frozenset(n % count for n in given)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Call":
        if self._plain is not None and not kwargs and len(args) == len(self._plain[0]):
            places, names = self._plain
            return _Call((), args, places, places, names, ())
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._refuse(
                f"wrong arguments for {self.name}", str(error), f"{self.name}{self._signature}"
            ) from None
        parameters = _bound_parameters(self._signature, bound)
        values: list[Any] = [*bound.args, *bound.kwargs.values()]
        static: tuple[tuple[int, type, Any], ...] = tuple(
            (i, v.__class__, v) for i, v in enumerate(values) if parameters[i][0] in self._static
        )
        try:
            hash(static)
        except TypeError:
            raise self._refuse("a static argument is not hashable", repr(static), "hashable static arguments") from None
        places = tuple(i for i in range(len(values)) if parameters[i][0] not in self._static)
        return _Call(
            static,
            tuple(values[i] for i in places),
            places,
            tuple(parameters[i][0] for i in places),
            tuple(parameters[i][1] for i in places),
            tuple(bound.kwargs),
        )

    def _key(self, leaf: Any) -> Any:
        """What the signature says of a leaf."""
        if isinstance(leaf, Array):
            return leaf.shape, leaf.dtype, leaf.weak_type
        aval = self._aval(leaf)
        return aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))

    def _struct(self, name: str, leaf: Any) -> jax.ShapeDtypeStruct:
        """What a leaf is traced as: of 32 bits where JAX narrows it; a `pw.Array` cannot become narrower."""
        struct = compat.struct(self._aval(leaf))
        narrow = compat.narrowed(struct)
        if isinstance(leaf, Array) and narrow.dtype != struct.dtype:
            have = f"{name}, a pw.Array of {struct.dtype}, while jax_enable_x64 is off in this thread"
            raise self._refuse(
                f"{self.name} would be traced for {narrow.dtype}", have, "jax.enable_x64(True) around it"
            )
        return narrow

    def _aval(self, leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if isinstance(leaf, Array):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
        try:
            return compat.aval_of(leaf)
        except TypeError:
            have = f"a {type(leaf).__name__} among the arguments"
            raise self._refuse(f"{self.name} takes arrays", have, "arrays, numbers, pw.Arrays, in pytrees") from None

    def _refuse(self, problem: str, have: str, rule: str) -> PathwaysError:
        advice = "look at the signature; what is no array goes into static_argnums"
        return PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller()))


@overload
def program(function: Callable[..., Any], /) -> Program: ...
@overload
def program(
    function: Callable[..., Any],
    /,
    *,
    example_args: ExampleArgs = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
) -> Program: ...
@overload
def program(
    *,
    example_args: ExampleArgs = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
) -> Callable[[Callable[..., Any]], Program]: ...
def program(
    function: Callable[..., Any] | None = None,
    /,
    *,
    example_args: ExampleArgs = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
) -> Program | Callable[[Callable[..., Any]], Program]:
    """Makes a program of a function of pytrees (paper, section 3); a decorator, bare or with options.

    `example_args` is what `pwc compile` compiles for: a tuple of arrays or `jax.ShapeDtypeStruct`s, or a function that
    returns it. Arguments in `donate_argnums` are given up by the caller: their memory is used for results. Arguments
    in `static_argnums` are hashable Python values; each combination is a program of its own.
    """

    def make(function: Callable[..., Any]) -> Program:
        return Program(
            function, example_args=example_args, donate_argnums=donate_argnums, static_argnums=static_argnums
        )

    return make if function is None else make(function)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        any_args = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([any_args])


def _bound_parameters(signature: inspect.Signature, bound: inspect.BoundArguments) -> list[tuple[int, str]]:
    """For each value of `bound.args` and `bound.kwargs` the number of its parameter, and its name."""
    numbers = {name: i for i, name in enumerate(signature.parameters)}
    found: list[tuple[int, str]] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found += [(numbers[name] + i, f"{name}[{i}]") for i in range(len(value))]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found += [(-1, keyword) for keyword in value]
        else:
            found.append((numbers[name], name))
    return found
