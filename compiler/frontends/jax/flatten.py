"""Flattens the jaxpr of a program into a graph. Jits that the user placed on a slice of virtual devices stay whole, as
one call each. Everything around them is inlined.

`trace.py` calls `flatten`. Three kinds of equations are *placed*, as one call each:

* a `jit` with virtual devices in its shardings;
* a `shard_map` over a virtual mesh;
* a `jit` whose body names one slice only, in constraints and shard_maps.

A `jit` without devices is inlined, so that each of its operations follows its own data. Otherwise one jit around
`optax.update` would move all parameters to one slice.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np

from pathways.compiler.errors import NotTraceable, SeveralSlices, Unsupported
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.alike import RowOfEquations, RunOfEquations
from pathways.compiler.frontends.jax.branches import branch, fenced
from pathways.compiler.frontends.jax.compat import Eqn, JaxBody, body_of, where_of_equation
from pathways.compiler.frontends.jax.graph import (
    Call,
    Callee,
    Constant,
    ExplicitMove,
    Operand,
    TracedGraph,
    TracedValue,
)
from pathways.compiler.frontends.jax.hoist import hoisted_consts
from pathways.compiler.frontends.jax.mentions import JITS, MOVES, MentionFinder, Mentions, move_targets
from pathways.compiler.frontends.jax.meshes import SliceMesh, sharding_from_jax, undivided
from pathways.compiler.frontends.jax.names import call_name
from pathways.compiler.frontends.jax.strays import Strays
from pathways.compiler.frontends.jax.unroll import Stacked, index_of, stack, unrolled_order
from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.dialect.jax_api import Tracer, optimization_barrier

OPENED = frozenset(
    {
        "checkpoint",
        "closed_call",
        "core_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "eval_jaxpr",
        "remat",
        "remat2",
    }
)
"""Calls that are inlined if something placed is inside. Differentiation has already happened."""
BRANCHES = frozenset({"while", "cond"})
"""Control flow on data: one computation if all its calls are on one mesh, otherwise bodies (branches.py)."""


def flatten(jaxpr: Any, program: str, where: Where | None) -> TracedGraph:
    """Builds the graph of a program. Raises coded errors at the user's line for code that cannot be placed."""
    body = body_of(jaxpr)
    graph = TracedGraph([TracedValue(v.aval) for v in body.invars])
    run = RunOfEquations(graph, join=True)
    walker = _Flattener(run, MentionFinder(jaxpr), program, where)
    outputs = walker.inline(body, [*graph.inputs], scope="")
    graph.outputs = [walker.result(o) for o in outputs]
    walker.run.end()
    graph.prune()
    return graph


class _Placed(NamedTuple):
    """The parts of a placed call that are the same in each iteration."""

    eqn: Eqn
    callee: Callee
    mesh: SliceMesh
    consts: list[TracedValue]
    where: Where | None


class _Flattener:
    def __init__(self, run: RunOfEquations, finder: MentionFinder, program: str, where: Where | None) -> None:
        self.program = program
        self.where = where
        self.run = run
        self.finder = finder
        self.strays = Strays()
        self._constants: dict[Any, Constant] = {}
        self._traced: dict[Any, Any] = {}
        self._wholes: dict[Any, Any] = {}
        self._hoisted: dict[int, tuple[Any, list[Any]]] = {}
        self._callees: dict[tuple[Any, ...], Callee] = {}
        self._plain: dict[int, tuple[Eqn, Where | None]] = {}
        self._placed: dict[int, _Placed] = {}
        """Placed calls of a program without strays, by equation: their calls differ only in operands."""
        self._readers: dict[int, tuple[Eqn, itemgetter[Any] | None]] = {}
        """Functions that read the operands of an equation; None if it has literals, or one operand."""
        self._rows: dict[int, RowOfEquations] = {}
        """Rows of equations, by the first equation."""
        self._meshes: dict[SliceMesh, SliceMesh] = {}
        self._lines: dict[Where | None, Where | None] = {}
        self._called_back: TracedValue | None = None
        """The last value that an unplaced equation with a host callback has made."""

    def inline(self, body: JaxBody, operands: Sequence[Operand], scope: str) -> list[Operand]:
        """Walks a body with its parameters bound to `operands`, and returns its results."""
        env: dict[Any, Operand] = {}
        for var, const in zip(body.constvars, body.consts, strict=True):
            env[var] = self.constant(const)
        env.update(zip(body.invars, operands, strict=True))

        eqns, at = body.eqns, 0
        again: list[tuple[int, Eqn, list[TracedValue]]] = []
        while at < len(eqns):
            eqn = eqns[at]
            if (row := self._rows.get(id(eqn))) is not None and self._add_row(row, env, scope):
                at += len(row.eqns)
                continue
            operands = self._read(eqn, env)
            if id(eqn) in self._plain:  # an iteration like those before
                outputs = self._loose(eqn, operands, scope)
                again.append((at, eqn, outputs))
            elif (placed := self._placed.get(id(eqn))) is not None:
                outputs = self._add_call(placed, operands).outputs
            else:
                outputs = self.equation(eqn, operands, scope)
            env.update(zip(eqn.outvars, outputs, strict=True))
            at += 1
        self._rows.update((id(row.eqns[0]), row) for row in self.run.find_rows(again))
        return [a if isinstance(a, compat.Literal) else env[a] for a in body.outvars]

    def _read(self, eqn: Eqn, env: dict[Any, Operand]) -> list[Operand]:
        """Returns the operands of an equation. Iterations of a loop read the same variables."""
        if id(eqn) not in self._readers:
            is_simple = len(eqn.invars) > 1 and not any(isinstance(a, compat.Literal) for a in eqn.invars)
            self._readers[id(eqn)] = eqn, itemgetter(*eqn.invars) if is_simple else None
        _, read = self._readers[id(eqn)]
        if read is not None:
            return list(read(env))
        return [a if isinstance(a, compat.Literal) else env[a] for a in eqn.invars]

    def _add_row(self, row: RowOfEquations, env: dict[Any, Operand], scope: str) -> bool:
        """Adds a row of equations at once. Returns whether that is possible in this iteration, too."""
        where = self._plain[id(row.eqns[0])][1]
        outputs = self.run.add_row(row, [env[a] for a in row.invars], scope, where)
        if outputs is not None:
            env.update(zip(row.outvars, outputs, strict=True))
        return outputs is not None

    def equation(self, eqn: Eqn, operands: list[Operand], scope: str) -> list[Operand]:
        name: str = eqn.primitive.name
        mentions = self.finder.in_eqn(eqn)
        if eqn.effects and any(compat.is_ordered(e) for e in eqn.effects):
            self._refuse_ordered(*(mentions.callback or (name, where_of_equation(eqn))))
        if name in JITS:
            return self._jit(eqn, operands, mentions, scope)
        if name in MOVES:
            return self._move(eqn, operands, scope)
        if not mentions.opens or (name in BRANCHES and not mentions.meshes):
            return self.loose(eqn, operands, scope)
        if name == "shard_map":
            return self._shard_map(eqn, operands, mentions)
        if name == "scan":
            return self._scan(eqn, operands, scope)
        if name in OPENED:
            (inner,) = list(compat.sub_jaxprs(eqn))[:1]
            return self.inline(body_of(inner), operands, scope)
        if name in BRANCHES:
            whole = self.finder.is_one_computation(eqn)
            return self._whole(eqn, operands, mentions) if whole else branch(self, eqn, operands, scope)
        raise self._unknown(eqn, name)

    def inside(self, graph: TracedGraph) -> "_Flattener":
        """Returns a walk of a body, with values of its own."""
        return _Flattener(RunOfEquations(graph, join=False), self.finder, self.program, self.where)

    def constant(self, array: Any, name: str = "") -> Constant:
        """Returns the constant of an array. All functions that close over the array share it."""
        if isinstance(array, Tracer):
            self._refuse_leak()
        if compat.is_ref(array):
            self._refuse_captured("a mutable array", array, "pass it as an argument: it is written back after the run")
        small = isinstance(array, int | float | bool | np.generic)
        key: Any = (type(cast("object", array)), repr(cast("object", array))) if small else id(array)
        if key not in self._constants:
            aval = compat.aval_of(array)
            if not hasattr(aval, "dtype"):
                self._refuse_captured(f"a {type(array).__name__}", array, "pass the arrays in it as arguments")
            self._constants[key] = Constant(aval, array, name or f"constant {len(self._constants)}")
        return self._constants[key]

    def as_value(self, operand: Operand) -> TracedValue:
        """Returns an operand as an array of its own: makes constants of literals, and builds stacks."""
        if isinstance(operand, Stacked):
            return stack(self, operand)
        if isinstance(operand, TracedValue):
            return operand
        value = np.asarray(operand.val, dtype=operand.aval.dtype)
        key = ("literal", str(operand.aval), value.tobytes())
        if key not in self._constants:
            self._constants[key] = Constant(operand.aval, value, str(operand.val))
        return self._constants[key]

    def loose(self, eqn: Eqn, operands: Sequence[Operand], scope: str) -> list[Operand]:
        """Adds an unplaced equation to the graph, and remembers that it is unplaced."""
        where = where_of_equation(eqn)
        self._plain[id(eqn)] = eqn, self._lines.setdefault(where, where)
        outputs = self._loose(eqn, operands, scope)
        if outputs and self.finder.in_eqn(eqn).callback is not None:
            self._called_back = outputs[0]
        return outputs

    def result(self, operand: Operand) -> TracedValue:
        """Returns a result of the program. A constant result fails if a host callback fails, as results of a jit do.

        Libraries wait for a constant result to learn if a check inside the computation has failed.
        """
        value = self.as_value(operand)
        if self._called_back is None or not isinstance(value, Constant):
            return value
        (bound,) = self.traced(_first_after_second, [value, self._called_back], "")
        return cast("TracedValue", bound)

    def _loose(self, eqn: Eqn, operands: Sequence[Operand], scope: str) -> list[Any]:
        taken = [stack(self, o) if isinstance(o, Stacked) else o for o in operands]
        outputs = [TracedValue(v.aval) for v in eqn.outvars]
        self.run.loose(eqn, taken, outputs, scope, self._plain[id(eqn)][1])
        return outputs

    def traced(self, function: Callable[..., Any], operands: Sequence[Operand], scope: str) -> list[Operand]:
        """Traces `function`, and adds its equations to the graph as unplaced operations."""
        values = [self.as_value(o) for o in operands]
        key = (function, tuple(str(v.aval) for v in values))
        if key not in self._traced:
            self._traced[key] = compat.traced_jaxpr(function, *(compat.struct(v.aval) for v in values))
        return self.inline(body_of(self._traced[key]), values, scope)

    def _jit(self, eqn: Eqn, operands: list[Operand], mentions: Mentions, scope: str) -> list[Operand]:
        own = self.finder.own(eqn).meshes
        params, where = eqn.params, where_of_equation(eqn)
        name, jaxpr = params["name"], params["jaxpr"]
        inner = self.finder.in_jaxpr(jaxpr)
        if len(mentions.meshes) > 1 and own:
            self._refuse_several(f"the call of {name}", mentions, where)
        if own or (inner.meshes and not inner.calls and len(inner.meshes) == 1):
            (mesh,) = (own or inner.meshes).values()
            callee = Callee(call_name(eqn), jaxpr, params["in_shardings"], params["out_shardings"])
        elif mentions.strayed and (found := self.strays.home(self.finder, eqn, operands)) is not None:
            mesh, in_shardings = found
            callee = Callee(call_name(eqn), jaxpr, in_shardings, params["out_shardings"])
        else:
            return self.inline(body_of(jaxpr), operands, scope or name)
        call = self._call(callee, mesh, operands, eqn)
        if self.finder.has_strays:
            self.strays.remember(eqn, mesh, callee.in_shardings, call)
        return cast("list[Operand]", call.outputs)

    def _shard_map(self, eqn: Eqn, operands: list[Operand], mentions: Mentions) -> list[Operand]:
        if len(mentions.meshes) > 1:
            self._refuse_several("a shard_map", mentions, where_of_equation(eqn))
        return self._whole(eqn, operands, mentions)

    def _whole(self, eqn: Eqn, operands: list[Operand], mentions: Mentions) -> list[Operand]:
        """Adds an equation as one computation on the only mesh that it names inside."""
        (mesh,) = mentions.meshes.values()
        specs = (eqn.params.get("in_specs"), eqn.params.get("out_specs"))
        key = (tuple(id(j) for j in compat.sub_jaxprs(eqn)), mesh, specs)
        if key not in self._wholes:
            self._wholes[key] = compat.one_eqn_jaxpr(fenced(eqn) if eqn.primitive.name == "cond" else eqn)
        jaxpr = self._wholes[key]
        callee = Callee(call_name(eqn), jaxpr, (None,) * len(operands), (None,) * len(eqn.outvars))
        return cast("list[Operand]", self._call(callee, mesh, operands, eqn).outputs)

    def _call(self, callee: Callee, mesh: SliceMesh, operands: list[Operand], eqn: Eqn) -> Call:
        """Adds a placed call. Ignores the donation of an inner jit: liveness.py donates operands at their last use."""
        where = where_of_equation(eqn)
        consts: list[TracedValue] = [self.constant(c) for c in self._consts_of(callee.jaxpr)]
        known = self._callees.setdefault(callee.key, callee)
        placed = _Placed(eqn, known, self._same(mesh), consts, where)
        call = self._add_call(placed, operands)
        if known is callee:  # the first of these calls
            _check_shardings(callee, call.inputs[len(consts) :], call.outputs, where)
        if not self.finder.has_strays:
            self._placed[id(eqn)] = placed
        return call

    def _add_call(self, placed: "_Placed", operands: Sequence[Operand]) -> Call:
        inputs = placed.consts + [o if type(o) is TracedValue else self.as_value(o) for o in operands]
        outputs = [TracedValue(v.aval) for v in placed.eqn.outvars]
        call = Call(placed.callee, placed.mesh, inputs, outputs, placed.where)
        self.run.add(call)
        return call

    def _same(self, mesh: SliceMesh) -> SliceMesh:
        """Returns one object for all equal meshes, so that most comparisons need only identity."""
        return self._meshes.setdefault(mesh, mesh)

    def _consts_of(self, jaxpr: Any) -> list[Any]:
        """Returns the arrays that a callee closes over; each jaxpr is searched once."""
        if id(jaxpr) not in self._hoisted:
            self._hoisted[id(jaxpr)] = jaxpr, hoisted_consts(jaxpr)
        return self._hoisted[id(jaxpr)][1]

    def _move(self, eqn: Eqn, operands: list[Operand], scope: str) -> list[Operand]:
        moved: list[Operand] = []
        for operand, target in zip(operands, move_targets(eqn), strict=True):
            if target is None:
                moved.append(operand)
                continue
            value, where = self.as_value(operand), where_of_equation(eqn)
            rank = len(value.aval.shape)
            mesh, dims = sharding_from_jax(target, rank, f"{eqn.primitive.name} of a value", where)
            if bad := undivided("the value", tuple(value.aval.shape), mesh, dims, where):
                raise PathwaysError(*bad)
            output = TracedValue(value.aval)
            self.run.add(ExplicitMove(self._same(mesh), dims, value, output, where))
            moved.append(output)
        return moved

    def _scan(self, eqn: Eqn, operands: list[Operand], scope: str) -> list[Operand]:
        """Unrolls a scan with placed calls inside. The index is an operand, so that all iterations share code."""
        params = eqn.params
        n_consts, n_carry = compat.scan_counts(eqn)
        consts, carry, xs = operands[:n_consts], operands[n_consts : n_consts + n_carry], operands[n_consts + n_carry :]
        body, length = body_of(params["jaxpr"]), params["length"]
        columns: list[list[Operand]] = [[None] * length for _ in eqn.outvars[n_carry:]]
        for t in unrolled_order(length, params["reverse"]):
            outputs = self.inline(body, [*consts, *carry, *(index_of(self, x, t, scope) for x in xs)], scope)
            carry = outputs[:n_carry]
            for column, y in zip(columns, outputs[n_carry:], strict=True):
                column[t] = y
        stacks = [Stacked(v.aval, c, scope) for v, c in zip(eqn.outvars[n_carry:], columns, strict=True)]
        return [*carry, *stacks]

    def _refuse_several(self, what: str, mentions: Mentions, where: Where | None) -> None:
        names = ", ".join(m.slice.described for m in mentions.meshes.values())
        raise PathwaysError(SeveralSlices(what=what, have_=f"shardings on {names}", where=where))

    def _refuse_leak(self) -> None:
        have = "a value that an earlier trace stored in a global, an attribute or a list"
        advice = "return all values from the functions of a program"
        problem = "it uses a traced value of another trace (a leaked tracer)"
        error = NotTraceable(program=self.program, problem=problem, have_=have, advice=advice, where=self.where)
        raise PathwaysError(error)

    def _refuse_captured(self, what: str, value: Any, advice: str) -> None:
        have = f"{compat.aval_of(value)}, which the program closes over"
        error = Unsupported(what=what, have_=have, rule="constants that are arrays", advice=advice, where=self.where)
        raise PathwaysError(error)

    def _refuse_ordered(self, name: str, where: Where | None) -> None:
        raise PathwaysError(
            Unsupported(
                what=f"an ordered host callback ({name})",
                have_="effects in program order, on islands that do not share an order",
                rule="callbacks whose order does not matter (ordered=False)",
                advice="remove ordered=True, or return the value from the program and use it outside",
                where=where,
            )
        )

    def _unknown(self, eqn: Eqn, name: str) -> PathwaysError:
        return PathwaysError(
            Unsupported(
                what=f"{name} around placed calls",
                have_=f"{name} with a call on a slice inside",
                rule="placed calls in jit, remat, custom_jvp, custom_vjp, shard_map, scan, cond, while_loop, fori_loop",
                advice="move this operation into the placed function",
                where=where_of_equation(eqn),
            )
        )


def _first_after_second(value: Any, awaited: Any) -> Any:
    """Returns `value`, which fails or becomes available together with `awaited`."""
    return optimization_barrier((value, awaited))[0]


def _check_shardings(
    callee: Callee, inputs: Sequence[TracedValue], outputs: Sequence[TracedValue], where: Where | None
) -> None:
    """Raises PWC0203 for all arguments and results that the user's shardings do not divide."""
    bad: list[Diagnostic] = []
    sides = ("argument", callee.in_shardings, inputs), ("result", callee.out_shardings, outputs)
    for kind, shardings, values in sides:
        for i, (sharding, value) in enumerate(zip(shardings, values, strict=True)):
            if not compat.is_unspecified(sharding):
                what = f"{kind} {i} of {callee.name}"
                placed, dims = sharding_from_jax(sharding, len(value.aval.shape), what, where)
                bad += undivided(what, tuple(value.aval.shape), placed, dims, where)
    if bad:
        raise PathwaysError(*bad)
