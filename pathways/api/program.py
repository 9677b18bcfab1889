"""Implements `pw.program`, the decorator that turns a Python function of pytrees into a program over virtual devices. A
call traces, compiles and places the function if needed, and then runs it.
"""

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import jax
from jax.sharding import Mesh

from pathways.api.arguments import NO_ARRAYS, aval_of_leaf, check_left_out, key_of, refusal
from pathways.api.array import Array
from pathways.api.binding import BoundCall, CallSignature, Chosen
from pathways.api.direct_calls import MISS
from pathways.api.jax_stages import TracedProgram
from pathways.api.mutable_arrays import call_with_refs, on_values, refs_among
from pathways.api.process import COMPILING, here, machines, process
from pathways.api.shared_code import shared_code_of
from pathways.api.warn import warn
from pathways.compiler.collector import collector_paused
from pathways.compiler.errors import EndlessCalls
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.meshes import ambient
from pathways.compiler.frontends.jax.own_devices import check_meshes
from pathways.compiler.frontends.jax.staged import stage
from pathways.compiler.frontends.jax.tracing_stack import around, meshes_named, tracing
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.errors import BadArguments
from pathways.dialect.jax_api import Tracer, config, tree_util
from pathways.dialect.user_line import caller
from pathways.runtime.host.devices.pjrt import lowering_platform

if TYPE_CHECKING:
    from pathways.api.stages import Compiled, Lowered
    from pathways.compiler.frontends.jax.trace import Outline, Traced

ExampleArgs = Sequence[Any] | Callable[[], Sequence[Any]] | None
Argnums = int | Sequence[int] | None
Argnames = str | Sequence[str] | None


class Program:
    """A function that is traced once for each signature, compiled, and run on the devices of this process.

    Calling it returns `pw.Array`s at once. `lower(*args)` stops after tracing. `keep_unused` and `inline` are taken as
    by `jax.jit`, but have no effect: a program keeps all arguments, and inside another program it is always inlined.
    `device`, `backend` and `compiler_options` may be None; for others, raises PWC0104.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        example_args: ExampleArgs = None,
        donate_argnums: Argnums = (),
        donate_argnames: Argnames = (),
        static_argnums: Argnums = (),
        static_argnames: Argnames = (),
        keep_unused: bool = False,
        inline: bool = False,
        device: None = None,
        backend: None = None,
        compiler_options: None = None,
        meshes: Mapping[Mesh, VirtualSlice] = MappingProxyType({}),
    ) -> None:
        if not callable(function):
            have = f"a {type(function).__name__}"
            rule, advice = "a function of pytrees of arrays", "pw.program(f), or @pw.program before `def f`"
            raise self._refuse("pw.program takes a function", have, rule, advice)
        check_left_out(device=device, backend=backend, compiler_options=compiler_options)
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._example = example_args
        check_meshes(meshes)
        self._meshes = dict(meshes)
        self._signature = CallSignature(function)
        self._donate = self._choose("donate", donate_argnums, donate_argnames)
        self._static = self._signature.static = self._choose("static", static_argnums, static_argnames)
        if both := self._donate & self._static:
            have = f"argument {min(map(str, (*both.numbers, *both.names)))} in both"
            rule, advice = "disjoint argnums and argnames", "remove it from the donate_ or from the static_ options"
            raise self._refuse("an argument cannot be donated and static", have, rule, advice)
        self._plain = self._signature.plain
        self._code = shared_code_of(function, (self._donate, self._static, frozenset(self._meshes.items())))
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.where = Where(code.co_filename, code.co_firstlineno, self.name) if code is not None else caller()

    def __repr__(self) -> str:
        place = "" if self.where is None else f" at {self.where.file}:{self.where.line}"
        compiled = sum(map(len, self._code.compiled.values()))
        return f"<pw.Program {self.name}{self._signature.python}{place}, signatures compiled: {compiled}>"

    def _repr_html_(self) -> str | None:
        """Draws the last compiled plan; before, the notebook shows only text."""
        compiled: list[Compiled] = list(self._code.latest[1].values())
        if not compiled:
            return None
        from pathways.api.pictures import html_of_plan  # the compilation has imported it already

        return html_of_plan(compiled[-1].plan)

    @property
    def example_args(self) -> tuple[Any, ...]:
        """Returns the default arguments for compilation. Raises PWC0104 if the program has none."""
        example = self._example() if callable(self._example) else self._example
        if example is None:
            raise PathwaysError(
                BadArguments(
                    problem=f"program {self.name} has no example arguments",
                    have_="pw.program without example_args",
                    rule="a tuple of arrays or jax.ShapeDtypeStructs, or a function that returns it",
                    advice=f"pw.program({self.name}, example_args=(jax.ShapeDtypeStruct((8,), 'float32'),))",
                    where=self.where,
                )
            )
        return tuple(example)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hot = self._code.hot
        if hot is not None and not kwargs and not around.get():
            call, known_settings = hot
            is_known = (compat.trace_context(), here()) == known_settings and compat.is_plain()
            if is_known and (result := call(args)) is not MISS:
                return result
        bound, dynamic = self._plain, args
        if bound is None or kwargs or len(args) != len(bound.names):
            bound, dynamic = self._bind(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        if around.get():
            return self._as_part(bound, leaves, tree, args, kwargs)
        for leaf in leaves:
            if isinstance(leaf, Tracer):
                return self._staged(bound, leaves, tree)
        settings, known = self._code.latest
        now = compat.trace_context(), here()
        if settings != now:
            known = self._code.under(now, machines())
        try:
            mesh = ambient()
        except ValueError:  # during JAX's tracing; JAX sees these arguments as constants
            return self._staged(bound, leaves, tree)
        try:
            key = (bound.key, tree, mesh, *map(key_of, leaves))
        except NO_ARRAYS as error:
            if refs := refs_among(leaves):
                return call_with_refs(self._on_values(bound, tree, refs), leaves, refs, self.name)
            raise refusal(self.name, dynamic, bound.names, error) from None
        compiled = known.get(key)
        if compiled is None:
            platform = process().platform  # first: it raises in a forked process, in which the lock may never be free
            now = now[0], here()  # the first call of all makes the process
            known = self._code.under(now, machines())
            with COMPILING, collector_paused(), Activity(f"preparing {self.name}"):
                compiled = known.get(key)
                if compiled is None:
                    compiled = known[key] = self._lower(platform, bound, dynamic).compile()
        calls = compiled.direct
        if calls is not None:
            if mesh is None and not kwargs and not self._static and calls.checks_types:
                self._code.hot = calls.of_arguments, now
            if (result := calls.of_leaves(leaves)) is not MISS:
                return result
        return compiled.unflatten(compiled.run_flat(leaves))

    def lower(self, *args: Any, **kwargs: Any) -> "Lowered":
        """Traces the program for these arguments (arrays or `jax.ShapeDtypeStruct`s).

        Raises coded errors at the user's line for unsupported operations.
        """
        return self.lower_for(process().platform, *args, **kwargs)

    def lower_for(self, platform: str, *args: Any, **kwargs: Any) -> "Lowered":
        """Traces like `lower`, for cpu, gpu or tpu, even if no such device is present."""
        return self._lower(platform, *self._bind(args, kwargs))

    def _lower(self, platform: str, bound: BoundCall, dynamic: tuple[Any, ...]) -> "Lowered":
        from pathways.api.stages import Lowered  # at the first trace: the compiler takes long to import
        from pathways.compiler.frontends.jax.trace import trace_program

        flat, tree = tree_util.tree_flatten_with_path(dynamic)
        structs = self._structs([leaf for _, leaf in flat], bound, dynamic)
        leaf_names: list[str] = [bound.names[path[0].idx] + tree_util.keystr(path[1:]) for path, _ in flat]
        donate = [*map(self._donate.has, bound.given)]
        donated = frozenset(i for i, (path, _) in enumerate(flat) if donate[path[0].idx])
        if config.jax_disable_jit:
            warn(
                f"jax.disable_jit has no effect on programs: {self.name} is traced and compiled as always. "
                "To see values in it, use jax.debug.print; to find NaNs, use jax.debug_nans"
            )

        def trace() -> "Traced":
            named = dict(self._meshes)
            around_trace = tracing(_mark(self, bound, tree, structs), named)
            with COMPILING, collector_paused(), jax.disable_jit(False), around_trace:
                return trace_program(
                    bound.function(self.function),
                    tree_util.tree_unflatten(tree, structs),
                    leaf_names,
                    donated,
                    name=self.name,
                    platform=platform,
                    lowering_platform=lowering_platform(platform),
                    where=self.where,
                    parameters=bound.parameters,
                    meshes=named,
                )

        return Lowered(trace(), tree, self.name, trace)

    def _structs(self, leaves: Sequence[Any], bound: BoundCall, dynamic: tuple[Any, ...]) -> list[jax.ShapeDtypeStruct]:
        """Returns the types used to trace leaves: 32 bits if JAX narrows them. A `pw.Array` cannot be narrowed."""
        try:
            structs = [compat.struct(aval_of_leaf(leaf)) for leaf in leaves]
        except NO_ARRAYS as error:
            raise refusal(self.name, dynamic, bound.names, error) from None
        narrow = [compat.narrowed(struct) for struct in structs]
        for leaf, wide, struct in zip(leaves, structs, narrow, strict=True):
            if isinstance(leaf, Array) and wide.dtype != struct.dtype:
                have = f"a pw.Array of {wide.dtype}, while jax_enable_x64 is off in this thread"
                rule, advice = "jax_enable_x64 on during the call", "with jax.enable_x64(True): around the call"
                raise self._refuse(f"{self.name} would be traced for {struct.dtype}", have, rule, advice)
        return narrow

    def _on_values(self, bound: BoundCall, tree: Any, refs: tuple[int, ...]) -> "Program":
        """Returns the program on the values of mutable arrays, created at first use."""
        key = bound.key, tree, refs
        of_values = self._code.of_values
        if (made := of_values.get(key)) is None:
            function = on_values(bound.function(self.function), tree, refs)
            arguments = zip(bound.given, tree.children(), strict=True)
            donated = [self._donate.has(given) for given, child in arguments for _ in range(child.num_leaves)]
            numbers = [i for i, is_donated in enumerate(donated) if is_donated and i not in refs]
            made = Program(function, donate_argnums=numbers, meshes=self._meshes)
            made.name, made.where = self.name, self.where
            return of_values.setdefault(key, made)
        return made

    def _as_part(
        self, bound: BoundCall, leaves: Sequence[Any], tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Traces this program as part of the program that calls it."""
        mark = _mark(self, bound, tree, leaves)
        if mark in around.get():
            have = f"a call of {self.name} inside of itself, with arguments of the same types"
            raise PathwaysError(EndlessCalls(program=self.name, have_=have, where=caller()))
        meshes_named.get({}).update(self._meshes)
        with tracing(mark):
            return self.function(*args, **kwargs)

    def _staged(self, bound: BoundCall, leaves: Sequence[Any], tree: Any) -> Any:
        """Stages a call under a JAX transformation. Its results have types, but the transformation cannot enter it."""
        structs = self._structs(leaves, bound, tree_util.tree_unflatten(tree, leaves))
        found = self._outline(bound, structs, tree)
        operands = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        return tree_util.tree_unflatten(found.out_tree, stage(self.name, operands, found.results))

    def _outline(self, bound: BoundCall, structs: Sequence[jax.ShapeDtypeStruct], tree: Any) -> "Outline":
        from pathways.compiler.frontends.jax.trace import outline  # at the first trace, as in `_lower`

        arguments = tree_util.tree_unflatten(tree, structs)
        with COMPILING, jax.disable_jit(False), tracing(_mark(self, bound, tree, structs)):
            return outline(bound.function(self.function), arguments, name=self.name, where=self.where)

    def trace(self, *args: Any, **kwargs: Any) -> TracedProgram:
        """Traces the program for these arguments: `.jaxpr`, `.out_info` and `.lower()`, as in `jax.stages.Traced`."""
        bound, dynamic = self._bind(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        structs = self._structs(leaves, bound, dynamic)
        found = self._outline(bound, structs, tree)
        lower = functools.partial(self.lower, *args, **kwargs)
        types = tuple(structs), found.out_tree, tuple(found.results)
        return TracedProgram(found.jaxpr, self.name, tree, *types, lower)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shapes and element types of the result, as `jax.ShapeDtypeStruct`s in its structure."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drops all code of the program, and of others that share it: the next call traces and compiles again."""
        self._code.clear()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds a program made from a method to its object, which becomes argument 0, as in `jax.jit`."""
        return self if instance is None else types.MethodType(self, instance)

    def _choose(self, what: str, argnums: Argnums, argnames: Argnames) -> Chosen:
        """Finds the parameters selected by the options `argnums` and `argnames`."""
        try:
            return self._signature.choose(() if argnums is None else argnums, () if argnames is None else argnames)
        except ValueError as error:
            which = "argnums" if "numbers" in str(error) else "argnames"
            given = argnums if which == "argnums" else argnames
            problem = f"{what}_{which} names an argument that does not exist"
            advice = f"the signature is {self.name}{self._signature.python}"
            raise self._refuse(problem, f"{what}_{which}={given!r}", str(error), advice) from None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[BoundCall, tuple[Any, ...]]:
        try:
            bound, dynamic = self._signature.bind(args, kwargs)
        except TypeError as error:
            rule = f"{self.name}{self._signature.python}"
            raise self._refuse(
                f"wrong arguments for {self.name}", str(error), rule, "call it with this signature"
            ) from None
        try:
            hash(bound.static)
        except TypeError:
            have, rule = repr(bound.static), "hashable static arguments"
            advice = "pass a tuple in place of a list, or arrays as arguments that are not static"
            raise self._refuse("a static argument is not hashable", have, rule, advice) from None
        return bound, dynamic

    def _refuse(self, problem: str, have: str, rule: str, advice: str) -> PathwaysError:
        return PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller()))


def _mark(program: Program, bound: BoundCall, tree: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the cache key of a call: the types of traced arguments and the values of static ones."""
    return (program, bound.key, tree, *map(_marked, leaves))


def _marked(leaf: Any) -> Any:
    if isinstance(leaf, Tracer | jax.ShapeDtypeStruct):
        return key_of(leaf)
    return (type(leaf), leaf) if isinstance(leaf, bool | int | float | complex | str) else id(leaf)


class ProgramOptions(TypedDict, total=False):
    """The options of `pw.program`."""

    example_args: ExampleArgs
    donate_argnums: Argnums
    donate_argnames: Argnames
    static_argnums: Argnums
    static_argnames: Argnames
    keep_unused: bool
    inline: bool
    device: None
    backend: None
    compiler_options: None
    meshes: Mapping[Mesh, VirtualSlice]


@overload
def program(function: Callable[..., Any], /, **options: Unpack[ProgramOptions]) -> Program: ...
@overload
def program(**options: Unpack[ProgramOptions]) -> Callable[[Callable[..., Any]], Program]: ...
def program(function: Callable[..., Any] | None = None, /, **options: Any) -> Program | Callable[..., Program]:
    """Makes a program from a function of pytrees (paper, section 3). Usable as a decorator, bare or with options.

    `example_args` are the default arguments for `pwc compile`: a tuple of arrays or `jax.ShapeDtypeStruct`s, or a
    function that returns it. Arguments in `donate_argnums` or `donate_argnames` are donated: their memory is reused for
    results. Arguments in `static_argnums` or `static_argnames` are hashable Python values; each combination makes its
    own program. Numbers and names refer to parameters, whether the call passes them by position or by name. `meshes`
    maps a mesh of this process's own devices, which a library uses inside the program, to the slice that replaces it.
    """

    def make(function: Callable[..., Any]) -> Program:
        return Program(function, **options)

    return make if function is None else make(function)
