"""Implements `pw.pipeline`. Users call it to convert a loss to a function of the same arguments that runs in pipeline
stages, over microbatches (jax#15710).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
from jax.sharding import Mesh, NamedSharding

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.assemble import is_code, read
from pathways.compiler.frontends.jax.pipeline.by_hand import Cuts
from pathways.compiler.frontends.jax.pipeline.call import LossCall, batch_positions, read_call, replaced
from pathways.compiler.frontends.jax.pipeline.chosen import (
    calls,
    choice_given,
    chosen,
    meshes_of_choice,
    param_specs_of,
    taken,
)
from pathways.compiler.frontends.jax.pipeline.errors import NoChoice
from pathways.compiler.frontends.jax.pipeline.graph import PARAMETER, Value
from pathways.compiler.frontends.jax.pipeline.microbatches import AUX, REDUCE, Microbatches, bad_pipeline
from pathways.compiler.frontends.jax.pipeline.mixing.semantics import BatchSemantics, semantics_of
from pathways.compiler.frontends.jax.pipeline.plan_stages import Planned, Subject, plan_stages, result_values
from pathways.compiler.frontends.jax.pipeline.planning import compiling_for
from pathways.compiler.frontends.jax.pipeline.shardings import ParamSpecs, Specs, axes_of, stage_meshes
from pathways.compiler.frontends.jax.pipeline.stage_function import stage_function
from pathways.compiler.frontends.jax.pipeline.table import StageTable, noted, table_of
from pathways.compiler.frontends.jax.pipeline.whole_batch import (
    MIXES,
    WholeBatch,
    check_reduce,
    warn_of_aux,
    warn_of_mixing,
    whole_batch,
)
from pathways.compiler.frontends.jax.tracing_stack import around
from pathways.dialect import jax_api
from pathways.dialect.choice import SplitChoice
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.jax_api import device_put, dtypes, jit, numpy
from pathways.dialect.user_line import caller


@dataclass(frozen=True)
class PipelineOptions:
    """Options of one `pw.pipeline` call."""

    batch_argnums: tuple[int, ...]
    microbatches: Microbatches
    param_specs: ParamSpecs
    cuts: Cuts
    accumulate: Any
    mixes: str = "warn"


class Pipelined:
    """A loss that runs in stages. Call it inside of a `pw.program`, directly or under `jax.value_and_grad`."""

    def __init__(
        self, loss: Callable[..., Any], meshes: Sequence[Mesh], options: PipelineOptions, where: Where | None
    ) -> None:
        functools.update_wrapper(self, loss, updated=())
        self.loss = loss
        self.options = options
        self.name: str = getattr(loss, "__name__", type(loss).__name__)
        self._meshes = meshes
        self._of_choices: list[tuple[SplitChoice, Pipelined]] = []
        self._subject = Subject(self.name, where)
        self._has_warned = False

    def __repr__(self) -> str:
        return (
            f"<pw.pipeline of {self.name}: {len(self._meshes)} stages, {self.options.microbatches.count} microbatches>"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (noted_calls := calls.get()) is not None:
            noted_calls.append((self, args, kwargs))
        if not self._meshes:
            return self._chosen()(*args, **kwargs)
        if (count := self._wanted_microbatches()) != self.options.microbatches.count:
            return self._with_microbatches(count)(*args, **kwargs)
        self._check_inside()
        call = self._read(args, kwargs)
        arrays = [call.leaves[i] for i in call.arrays]
        many = self.options.microbatches
        if many.count == 1:
            planned, specs, rows = self._plan(call, arrays)
            return many.unsplit(self._run(planned, specs, rows, self._prepared(planned, specs, arrays), arrays))
        whole = self._whole_batch(call, arrays)
        self._warn_once(whole)
        extras = whole.made_once(arrays)
        batch = self._split(call, arrays, whole) + whole.cut(extras)
        shapes = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in batch]
        one = call.one_microbatch(arrays, shapes)
        planned, specs, rows = self._plan(call, one, whole)
        prepared = self._prepared(planned, specs, one)

        def run(leaves: Sequence[Any]) -> Any:
            return self._run(planned, specs, rows, prepared, call.one_microbatch(arrays, leaves))

        return many.over(run, batch, whole.finish(arrays, extras))

    def _whole_batch(self, call: LossCall, arrays: Sequence[Any], many: Microbatches | None = None) -> WholeBatch:
        """Decides how the loss runs over microbatches. Raises PWC0112 if rows do not divide evenly."""
        many = many or self.options.microbatches
        for p in call.batch:
            many.split(_struct(arrays[p]), call.names[p])

        def loss(*leaves: Any) -> Any:
            return call.made_by(self.loss, leaves)

        with axes_of(self._meshes):
            types = [_struct(a) for a in arrays]
            return whole_batch(loss, types, call.batch, many, self.options.mixes)

    def _warn_once(self, whole: WholeBatch) -> None:
        """Warns once if a loss mixes examples. Raises PWC0119, PWC0124 and PWC0128."""
        mixes = self.options.mixes
        if mixes != "allow":
            check_reduce(self.name, whole)
        if not self._has_warned or mixes == "refuse":
            warn_of_mixing(self._semantics(whole), mixes)
            warn_of_aux(self.name, whole, mixes)
            self._has_warned = True

    def _semantics(self, whole: WholeBatch) -> BatchSemantics:
        return semantics_of(self.name, whole.many.count, whole.handling.verdict, self.options.mixes)

    def batch_semantics(self, *args: Any, **kwargs: Any) -> BatchSemantics:
        """Returns the verdict on the loss over microbatches for these arguments, arrays or `jax.ShapeDtypeStruct`s.

        The verdict is "mean", "sum", "exact", "mixes" or "unknown". Over one microbatch, every loss is "exact".
        """
        if not self._meshes and self.options.microbatches.count == 1:
            return self._chosen().batch_semantics(*args, **kwargs)
        call = self._read(args, kwargs)
        if self.options.microbatches.count == 1:
            return BatchSemantics(self.name, 1, "exact", (), "the batch is whole")
        return self._semantics(self._whole_batch(call, [call.leaves[i] for i in call.arrays]))

    def _split(self, call: LossCall, arrays: Sequence[Any], whole: WholeBatch) -> list[Any]:
        return [whole.many.split(arrays[p], call.names[p], is_whole=whole.is_whole) for p in call.batch]

    def _check_inside(self) -> None:
        """Raises PWC0112 outside of a program: no device of a slice can compute there."""
        if not around.get():
            have, rule = "a call outside of a program, or in a jax.jit", "a program, which runs the stages on devices"
            raise bad_pipeline(f"{self.name} has stages", have, rule, "@pw.program in place of @jax.jit on the step")

    def stages(self, *args: Any, **kwargs: Any) -> StageTable:
        """Returns the stages of the loss for these arguments, arrays or `jax.ShapeDtypeStruct`s, as a table."""
        if not self._meshes:
            return self._chosen().stages(*args, **kwargs)
        call = self._read(args, kwargs)
        arrays = [_struct(call.leaves[i]) for i in call.arrays]
        many = self.options.microbatches
        if many.count == 1:
            return self._table(self._plan(call, arrays)[0], call.rows_of(arrays))
        whole = self._whole_batch(call, arrays)
        batch = [*self._split(call, arrays, whole), *jax_api.eval_shape(whole.extras_of, *arrays)]
        shapes = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in batch]
        one = call.one_microbatch(arrays, shapes)
        return self._table(self._plan(call, one, whole)[0], call.rows_of(one), whole)

    def _table(self, planned: Planned, rows: Sequence[int], whole: WholeBatch | None = None) -> StageTable:
        semantics = None if whole is None else self._semantics(whole)
        return table_of(self.name, planned, self._meshes, self.options.microbatches.count, semantics, rows)

    def batch_positions(self, count: int) -> set[int]:
        """Returns the positions of the batch among `count` arguments."""
        return batch_positions(self.options.batch_argnums, count)

    def unplaced(
        self, microbatches: int, *args: Any, **kwargs: Any
    ) -> tuple[Callable[[Sequence[Any]], Any], list[Any], list[str]]:
        """Returns the loss over `microbatches` microbatches for one device, uncut and without aux.

        It is a function of the floating-point arrays outside the batch. These are returned, too, with their names.
        """
        call = self._read(args, kwargs)
        many = replace(self.options.microbatches, count=microbatches)
        known = [call.leaves[i] for i in call.arrays]
        floating = [n for n, leaf in enumerate(known) if n not in call.batch and _is_floating(leaf)]

        def value(given: Sequence[Any]) -> Any:
            arrays = replaced(known, floating, given)

            if microbatches == 1:
                made = many.unsplit(call.made_by(self.loss, arrays))
                return made[0] if many.has_aux else made
            whole = self._whole_batch(call, arrays, many)
            extras = whole.made_once(arrays)
            batch = self._split(call, arrays, whole)

            def run(leaves: Sequence[Any]) -> Any:
                return whole.of_microbatch(*call.one_microbatch(arrays, leaves))

            made = many.over(run, batch + whole.cut(extras), whole.finish(arrays, extras))
            return made[0] if many.has_aux else made

        return value, [known[n] for n in floating], [call.names[n] or "it" for n in floating]

    @property
    def has_slices(self) -> bool:
        """Whether it was given slices, or creates those of a choice."""
        return bool(self._meshes)

    def of_choice(self, choice: SplitChoice) -> "Pipelined":
        """Returns the same loss on new slices, split as a choice says."""
        many = replace(self.options.microbatches, count=choice.microbatches)
        specs = self.options.param_specs if self.options.param_specs is not None else param_specs_of(choice)
        cuts = self.options.cuts if self.options.cuts is not None else choice.cuts or None
        options = replace(self.options, microbatches=many, param_specs=specs, cuts=cuts)
        return Pipelined(self.loss, meshes_of_choice(choice), options, self._subject.where)

    def _wanted_microbatches(self) -> int:
        target = compiling_for.get()
        return target.microbatches if target is not None and target.microbatches else self.options.microbatches.count

    def _with_microbatches(self, count: int) -> "Pipelined":
        """Returns the same loss on the same slices with another number of microbatches."""
        options = replace(self.options, microbatches=replace(self.options.microbatches, count=count))
        return Pipelined(self.loss, self._meshes, options, self._subject.where)

    def _chosen(self) -> "Pipelined":
        """Returns the pipeline for the program's choice. Raises PWC0116 if there is no choice."""
        choice = chosen.get()
        if choice is None:
            raise PathwaysError(NoChoice(loss=self.name, where=caller() or self._subject.where))
        taken.get([]).append(self.name)
        for known, made in self._of_choices:
            if known == choice:
                return made
        self._of_choices.append((choice, self.of_choice(choice)))
        return self._of_choices[-1][1]

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LossCall:
        return read_call(self.name, self.options.batch_argnums, args, kwargs)

    def _plan(
        self, call: LossCall, arrays: Sequence[Any], whole: WholeBatch | None = None
    ) -> tuple[Planned, Specs, int]:
        """Cuts the loss of these leaves into stages. With `whole`, it cuts the computation of one microbatch."""
        avals = [_struct(a) for a in arrays]
        names = [*call.names, *([""] * (len(arrays) - len(call.names)))]
        specs = Specs(self.options.param_specs, names, avals, call.trees)
        first = self._meshes[0]
        data = [*call.batch, *range(len(call.arrays), len(arrays))]

        def flat(*given: Any) -> Any:
            return call.made_by(self.loss, given) if whole is None else whole.of_microbatch(*given)

        def shards(position: int) -> int:
            value = Value(avals[position], PARAMETER, argument=position)
            sharding = specs.of(value, first, 0)
            shape = tuple(avals[position].shape)
            return max(1, math.prod(shape) // max(1, math.prod(sharding.shard_shape(shape))))

        planned = plan_stages(
            self._subject,
            flat,
            avals,
            frozenset(data),
            self._meshes,
            self.options.microbatches.count,
            self.options.cuts,
            shards,
            None if whole is None else whole.traced,
        )
        rows = call.rows_of(avals)
        if (tables := noted.get()) is not None:
            tables.append(self._table(planned, rows, whole))
        return planned, specs, min(rows, default=0)

    def _prepared(self, planned: Planned, specs: Specs, arrays: Sequence[Any]) -> dict[tuple[Value, int], Any]:
        """Brings the parameters of each stage to its slice once, and not once per microbatch.

        A parameter of several stages is copied to all but the first. Each stage adds up its gradients before sending
        them.
        """
        wide = self.options.accumulate
        env: dict[Value, Any] = {}
        for value in planned.assembled.graph.arguments:
            if value.depends == PARAMETER:
                leaf = arrays[value.argument]
                env[value] = leaf if wide is None or not _is_floating(leaf) else leaf.astype(wide)
        for operation in planned.assembled.before:
            env.update(zip(operation.outputs, operation.run([read(o, env) for o in operation.inputs]), strict=True))
        prepared: dict[tuple[Value, int], Any] = {}
        owners: dict[Value, int] = {}
        for stage in planned.assembled.stages:
            for value in stage.inputs:
                if value in env:
                    sharding = specs.of(value, self._meshes[stage.number], 0)
                    split = any(sharding.spec)  # in a loop, JAX drops a jit's in_shardings of forwarded operands
                    copied = owners.setdefault(value, stage.number) != stage.number or split
                    prepared[value, stage.number] = self._copied(env[value], sharding) if copied else env[value]
        return prepared

    def _run(
        self,
        planned: Planned,
        specs: Specs,
        rows: int,
        prepared: dict[tuple[Value, int], Any],
        arrays: Sequence[Any],
    ) -> Any:
        """Runs all stages for one microbatch."""
        graph = planned.assembled.graph
        env: dict[Value, Any] = {v: arrays[v.argument] for v in graph.arguments}
        for stage in planned.assembled.stages:
            given = [prepared.get((v, stage.number), env.get(v, v.constant)) for v in stage.inputs]
            types = [None if is_code(v) else v.aval.dtype for v in stage.inputs]
            casts = [t if g.dtype != t else None for g, t in zip(given, types, strict=True)]
            function = stage_function(stage, graph.checkpoints, casts)
            shardings: list[NamedSharding] = [specs.of(v, self._meshes[stage.number], rows) for v in stage.inputs]
            env.update(zip(stage.outputs, self._placed(function, shardings, given), strict=True))
        return result_values(planned, env)

    def _copied(self, value: Any, sharding: NamedSharding) -> Any:
        return device_put(value, sharding)

    def _placed(self, function: Callable[..., Any], shardings: Sequence[NamedSharding], given: Sequence[Any]) -> Any:
        return jit(function, in_shardings=tuple(shardings))(*given)


def pipeline(
    loss: Callable[..., Any],
    slices: Any = None,
    *,
    choice: Any = None,
    microbatches: int = 1,
    batch_argnums: int | Sequence[int] = 1,
    has_aux: bool = False,
    param_specs: ParamSpecs = None,
    reduce: str = "mean",
    aux: str = "stack",
    cuts: Cuts = None,
    accumulate: Any = None,
    mixes: str = "warn",
) -> Pipelined:
    """Cuts an ordinary loss into stages, one for each of `slices`. Returns a function that is equal to `loss`.

    Call the function inside of a `pw.program`, under `jax.value_and_grad` or forward only. The step around it does not
    change. `slices` are `pw.VirtualSlice`s or meshes over them. A repeated slice has several stages (`interleaved`).

    `batch_argnums` are the arguments whose leaves have the rows of the batch. They are cut into `microbatches`, whose
    losses `reduce` combines: "mean", "sum", or "weighted". For "weighted", `loss` returns (sum, weight), and the result
    is the quotient of their sums. With `has_aux`, `loss` returns (loss, aux). `aux` combines those of the microbatches:
    "stack", "mean", "sum", "last" or "concat". `accumulate` is the type in which gradients add up.

    Losses that are another function of sums, or draw noise with one key, equal those of the whole batch. If examples
    mix, as in batch normalization, each microbatch has its own statistics. `mixes` then selects a warning ("warn", of
    the class `pw.MicrobatchWarning`), an error ("refuse"), or neither ("allow"). The result's `batch_semantics` returns
    the verdict.

    `param_specs` splits parameters over the mesh of their stage. It is a function of a leaf's path and type, a dict of
    path patterns, or a tree like the parameters. The batch is split over the axis "data". `cuts` names where stages
    begin: modules, FILE:LINE, or the layers of each stage. Without `cuts`, the compiler chooses.

    In place of slices, `choice` is a result of `pw.search`, or a file of it. It sets the numbers of slices and
    microbatches, and the cuts and specs that are not given. Without both, `pwc compile --choice` sets it.

    Raises PWC0111 if the loss has no position to cut at, PWC0112 for invalid arguments, and PWC0113 if no cut fits the
    topology's memory. Under mixes="refuse", raises PWC0119 for a loss that mixes examples, and PWC0128 for such an aux.
    Raises PWC0124 if `reduce` changes the value of the loss.
    """
    argnums = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    if not isinstance(cast("object", microbatches), int) or microbatches < 1:
        raise bad_pipeline(
            "microbatches= of pw.pipeline is not valid", repr(microbatches), "a whole number from 1", "microbatches=8"
        )
    for name, given, known in (("reduce", reduce, REDUCE), ("aux", aux, AUX), ("mixes", mixes, MIXES)):
        if given not in known:
            raise bad_pipeline(f"{name}={given!r} is not valid", repr(given), ", ".join(known), f"{name}={known[0]!r}")
    many = Microbatches(microbatches, reduce, has_aux, aux)
    options = PipelineOptions(argnums, many, param_specs, cuts, accumulate, mixes)
    if choice is not None and microbatches != 1:
        have, rule = f"microbatches={microbatches} and a choice", "one of them: a choice states its microbatches"
        raise bad_pipeline("pw.pipeline got microbatches and a choice", have, rule, "leave microbatches out")
    if slices is not None and choice is not None:
        raise bad_pipeline("pw.pipeline got slices and a choice", "both", "one of them", "leave slices out")
    made = Pipelined(loss, [] if slices is None else stage_meshes(slices), options, caller())
    return made if choice is None else made.of_choice(choice_given(choice))


def _struct(array: Any) -> jax.ShapeDtypeStruct:
    return compat.narrowed(compat.struct(array if isinstance(array, jax.ShapeDtypeStruct) else compat.aval_of(array)))


def _is_floating(leaf: Any) -> bool:
    return bool(dtypes.issubdtype(leaf.dtype, numpy.floating))
