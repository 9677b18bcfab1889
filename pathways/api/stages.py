"""Defines lowered and compiled programs, like `jax.stages`. Calling `Compiled` runs its plan and returns at once."""

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pathways.api.analysis import MemoryAnalysis, memory_of, requested_islands
from pathways.api.arguments import check_left_out
from pathways.api.array import Array
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.api.direct_calls import MISS, DirectCalls, await_callbacks_at_barrier
from pathways.api.dispatching import PARALLEL, is_sequential
from pathways.api.jax_stages import CompiledAsInJax, LoweredAsInJax
from pathways.api.kept_plans import KeptPlans
from pathways.api.pictures import PicturedPlan, PicturedProgram
from pathways.api.pieced_arguments import give_up_others, spread_leaves, whole
from pathways.api.process import COMPILING, process
from pathways.api.recipes import Recipe
from pathways.api.result_shardings import slice_like, virtual_sharding
from pathways.api.simulation import SimulatedPlan, SimulatedProgram
from pathways.api.summary import compile_summary
from pathways.api.warn import warn
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling, compiling_for
from pathways.compiler.frontends.jax.pipeline.table import StageTable
from pathways.compiler.frontends.jax.trace import Traced
from pathways.compiler.pass_manager import Options, Timing
from pathways.compiler.placement import PlacementPolicy
from pathways.compiler.rederive_per_device import with_local_modules
from pathways.compiler.schedule import PROGRAM
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.jax_api import tree_util
from pathways.dialect.mlir import Module, pretty, text
from pathways.dialect.phases import Phase
from pathways.dialect.plan.leaves import leaf_ports, leaves_of
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.plan.plan_file import save_plan
from pathways.dialect.plan.signature import NAME, arguments_in_order, shown
from pathways.dialect.topology import Topology, parse_topology
from pathways.dialect.trees import build_tree, compatible, describe_tree
from pathways.dialect.user_line import caller
from pathways.runtime.client import debugging
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.errors import CannotReplace, WrongStructure
from pathways.runtime.host.devices.pjrt import COSTS
from pathways.runtime.host.load.costs import IslandCost


class Lowered(SimulatedProgram, PicturedProgram, LoweredAsInJax):
    """A traced program, not placed yet. `module` is its IR of phase `trace`."""

    def __init__(self, traced: Traced, in_tree: Any, name: str, trace: Callable[[], Traced] | None = None) -> None:
        self._traced = traced
        with COMPILING:
            self._plans = KeptPlans(process().controller.executables.folder, traced)
        self.slices: dict[str, VirtualSlice] = self._plans.slices
        self.timing: dict[str, float] = traced.timing
        """Seconds of JAX's tracing, its lowering and the rest of phase `trace`; a known program is only traced."""
        self.pipelines: tuple[StageTable, ...] = traced.pipelines
        """The stages into which the program's losses were cut."""
        self._in_tree, self._in_types = in_tree, traced.in_types
        self._out_tree, self._out_types = traced.out_tree, traced.out_types
        self._name = name
        self._again = trace if traced.pipelines else None
        self._settings = compat.trace_context()
        self._target = compiling_for.get() or Target()
        self._cut_anew: dict[Target, Lowered] = {}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{symbol} of {len(s.devices)}" for symbol, s in self.slices.items())
        trees = f"{self._in_tree.num_leaves} inputs, {self._out_tree.num_leaves} results"
        return f"<pw.Lowered {self._name}: {trees}; slices {sizes or 'none'}>"

    @property
    def constants(self) -> dict[str, bytes]:
        """The bytes of closed-over arrays above 1 KiB, by their name in the IR."""
        with COMPILING:
            return self._traced.emitted().constants

    @property
    def _program(self) -> ProgramIR:
        """The program as traced. Requires the lock of compilations."""
        return self._traced.emitted().program

    @property
    def module(self) -> Module:
        with COMPILING:
            self._plans.stop()
            return self._program.module

    def copied_program(self) -> ProgramIR:
        """Returns a copy of the traced program, which the caller may compile."""
        with COMPILING:
            return self._program.copy()

    def as_text(self, phase: Phase | str = Phase.TRACE, *, debug_info: bool = False) -> str:
        """Returns the IR after `phase`: trace, shard, place, transfer, schedule or plan."""
        if phase not in list(Phase):
            have, rule = repr(phase), f"one of {', '.join(Phase)}"
            problem, advice = "there is no such phase", "as_text('place')"
            error = BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller())
            raise PathwaysError(error)
        module = self._compilation(Phase(phase), None, Options()).program.module
        return text(module) if debug_info else pretty(module)

    def _compilation(self, phase: Phase, topology: Topology | None, options: Options) -> Compilation:
        """Compiles the program up to `phase`."""
        with COMPILING:
            compilation = self._begun(topology)
            compilation.advance(phase, options=options)
            return compilation

    def _begun(self, topology: Topology | None) -> Compilation:
        program = self._program.copy()
        return Compilation(program, self.constants, process().session(program, self.slices, topology))

    def compile(
        self,
        topology: Topology | str | None = None,
        *,
        placement: str | PlacementPolicy = "spread",
        schedule: str = PROGRAM,
        merge: bool = True,
        remat: str = "no",
        dispatch: str = PARALLEL,
        without: str | Sequence[str] = (),
        compiler_options: None = None,
    ) -> "Compiled":
        """Compiles for a topology (a spec or a `pw.Topology`); without one, for this process.

        On CPU that is one island for each slice, elsewhere the host's own devices. `placement` is a name, FILE.py:NAME,
        or a function `place(graph, topology)`. `schedule` orders a loop over microbatches: program, gpipe, 1f1b,
        interleaved, zero-bubble or a table as FILE.csv. `merge` makes one executable of calls without a wait between
        them. `remat="auto"` recomputes activations that would not fit. `dispatch="sequential"` waits for each
        computation before the next. `without` names passes to omit. Warns if nothing can be scheduled. Raises PWC0301
        if slices do not fit, PWC0302 if memory does not suffice. Raises PWC0305 for an illegal placement,
        PWC0402-PWC0405 for a schedule, PWC0711 if a pass is required. `compiler_options` may be None, as for `jax.jit`;
        for others, raises PWC0104.
        """
        check_left_out(compiler_options=compiler_options)
        wanted = parse_topology(topology) if isinstance(topology, str) else topology
        left_out = (without,) if isinstance(without, str) else tuple(without)
        options = Options(placement=placement, schedule=schedule, merge=merge, remat=remat, without=left_out)
        lowered = self.cut_for(Target.of(wanted or process().known_topology, schedule))
        return lowered._compile(wanted, options, dispatch)

    def cut_for(self, target: Target) -> "Lowered":
        """Returns the program with its losses cut for this target, traced again if that may change the cut."""
        if self._again is None or target == self._target:
            return self
        if compat.trace_context() != self._settings:
            warn(f"JAX settings have changed since {self._name} was traced: its losses are not cut again")
            return self
        if target not in self._cut_anew:
            with compiling(target):
                self._cut_anew[target] = Lowered(self._again(), self._in_tree, self._name, self._again)
        return self._cut_anew[target]

    def _compile(self, wanted: Topology | None, options: Options, dispatch: str) -> "Compiled":
        plan, timing = self._plans.of(wanted, options, self.compiled)
        if wanted is None:
            process().keep_bindings(plan, self.slices)
        if options.schedule != PROGRAM and not plan.schedule.microbatches:
            warn(f"schedule {options.schedule!r} changes nothing in {plan.name}: {plan.schedule.note}")
        return Compiled(
            plan,
            slices=self.slices,
            in_tree=self._in_tree,
            out_tree=self._out_tree,
            timing=timing,
            recipe=Recipe(self, wanted, options),
            dispatch=dispatch,
            pipelines=self.pipelines,
        )

    def compiled(self, topology: Topology | None, options: Options) -> Compilation:
        """Compiles up to the plan."""
        return self._compilation(Phase.PLAN, topology, options)


class Compiled(PicturedPlan, SimulatedPlan, CompiledAsInJax):
    """A plan bound to this process's devices. A call runs it and returns `pw.Array`s at once.

    After a device is lost or an island removed, the next run is placed again, on islands with all their devices.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        slices: dict[str, VirtualSlice] | None = None,
        in_tree: Any = None,
        out_tree: Any = None,
        timing: Timing | None = None,
        path: str = "plan",
        recipe: Recipe | None = None,
        dispatch: str = PARALLEL,
        pipelines: tuple[StageTable, ...] = (),
    ) -> None:
        self.plan = plan
        self.pipelines = pipelines
        """The stages into which the program's losses were cut; empty for a plan from a file."""
        self._recipe = recipe
        self._lock = threading.Lock()
        self.timing = timing or Timing()
        self._in_tree = in_tree
        self._out_tree = out_tree
        self._sequential = is_sequential(dispatch)
        self._loaded: LoadedPlan = process().load(plan, path, sequential=self._sequential)
        self._slices = slices or {s.name: slice_like(s) for s in plan.slices}
        self._ends = self._ends_of(plan)
        self._taken, self._made = leaves_of(plan.inputs), leaves_of(plan.results)
        self._takes_pieces, self._makes_pieces = (any(x.is_cut for x in side) for side in (self._taken, self._made))
        taken = [p for p in plan.parameters if not p.static]
        self._positional = -1 if any(p.how == NAME for p in taken) or not plan.parameters else len(taken)
        """Number of arguments of a call if all may be passed by position, else -1."""
        self.direct = self._direct_calls()

    def __repr__(self) -> str:
        plan = self.plan
        signature = shown(plan.name, plan.parameters)
        calls = f"{sum(1 for _ in plan.runs())} calls on {len(plan.streams)} islands"
        comma = "," if any(p.static for p in plan.parameters) else ""
        counts = f"{len(self._taken)} inputs, {len(self._made)} results, {calls}"
        return f"<pw.Compiled {signature}{comma} for {plan.platform}: {counts}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the plan on arguments by position or by name, as for the function, but without the static ones.

        Raises PWC0501 or PWC0502 for arguments for which the plan was not compiled.
        """
        if kwargs or len(args) != self._positional:
            args = self._in_order(args, kwargs)
        if self.direct is not None and (result := self.direct.of_arguments(args)) is not MISS:
            return result
        leaves, tree = tree_util.tree_flatten(args)
        if self._in_tree is None or tree != self._in_tree:
            self._check_structure(tree)
        return self.unflatten(self.run_flat(leaves))

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Puts arguments in the order of the plan. Raises PWC0502."""
        parameters = self.plan.parameters
        if not parameters and not kwargs:  # no arguments, or a plan of an older version: check the structure
            return args
        try:
            return arguments_in_order(parameters, args, kwargs)
        except TypeError as error:
            rule = shown(self.plan.name, parameters)
            if not parameters and self.plan.in_tree.children:
                rule = "arguments by position: the plan is of an older version, which did not store their names"
            raise self._wrong_structure(str(error), rule) from None

    def run_flat(self, leaves: Sequence[Any]) -> list[Array]:
        """Runs the plan on one value for each input. Returns one array for each result."""
        if self._loaded.lost is not None:
            self._place_anew()
        if self._loaded.calls_back:
            await_callbacks_at_barrier()
        run = debugging.run_debugged if debugging.is_requested() else LoadedPlan.run
        name, taken = self.plan.name, self._taken
        cut = self._takes_pieces or ArrayInPieces in map(type, leaves)
        handles = run(self._loaded, spread_leaves(leaves, taken, name) if cut else leaves)
        arrays = [Array(h, port, sharding) for h, (port, sharding) in zip(handles, self._ends, strict=True)]
        if cut:
            give_up_others(leaves, taken, name)
        return [whole(leaf, [arrays[n] for n in leaf.numbers]) for leaf in self._made] if self._makes_pieces else arrays

    def _direct_calls(self) -> DirectCalls | None:
        """Prepares calls without the general checks, for plans that allow them."""
        direct = self._loaded.direct
        if direct is None or self._in_tree is None or self._takes_pieces or self._makes_pieces:
            return None
        is_leaf = self._out_tree is not None and tree_util.treedef_is_leaf(self._out_tree)
        return DirectCalls(direct, self._in_tree, self._ends, self.unflatten, is_leaf=is_leaf)

    def _place_anew(self) -> None:
        """Places the plan on other devices after a loss. Raises PWC0513 if it fits nowhere."""
        with COMPILING, self._lock:  # in this order: a trace may call the program that is placed again
            lost = self._loaded.lost
            if lost is None:  # another thread has placed it
                return
            plan = self.plan if self._has_its_islands() else self._made_anew(lost.key)
            moved = ", ".join(f"{s.name} -> {s.island}" for s in plan.slices)
            reason = next(iter(lost.lost.values()), "it was disconnected")
            what = "lost a device" if len(lost.lost) < len(lost.devices) else "is lost"
            print(f"note: {lost.key} {what} ({reason}); {plan.name} is placed again: {moved}", file=sys.stderr)
            loaded = process().load(plan, sequential=self._sequential)
            if loaded.lost is lost:  # the program pins this island, or there is no other
                have, needs = f"a placement on {lost.key} again", "islands that have all their devices"
                raise self._cannot_replace(lost.key, have, needs, "use a slice that is not pinned, or a spare island")
            self.plan, self._loaded, self._ends = plan, loaded, self._ends_of(plan)
            self.direct = self._direct_calls()

    def _has_its_islands(self) -> bool:
        """Whether all islands of the plan exist, possibly restarted under the same name, with the same size."""
        there = {(i.name, len(i.devices)) for i in process().machine.islands if not i.lost}
        return all((s.island, self.plan.topology.island(s.island).size) in there for s in self.plan.streams)

    def _made_anew(self, lost: str) -> Plan:
        """Returns a plan for the existing islands. Raises PWC0513 if it fits nowhere."""
        if self._recipe is None:
            have, needs = "a plan from a file", "a program that was traced in this process"
            raise self._cannot_replace(lost, have, needs, "run the program from its source, or restart the process")
        try:
            return self._recipe.remake(process().lost_islands())
        except PathwaysError as error:
            if error.code != "PWC0301":
                raise
            problem = error.diagnostic
            have, needs = problem.text(problem.have), problem.text(problem.need)
            advice = "use a topology with a spare island, pw.add_island(), or wait until the device is back"
            raise self._cannot_replace(lost, have, needs, advice) from error

    def _cannot_replace(self, island: str, have: str, needs: str, advice: str) -> PathwaysError:
        error = CannotReplace(
            program=self.plan.name, island=island, have_=have, needs=needs, advice=advice, where=caller()
        )
        return PathwaysError(error)

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Puts the results in the structure that the program returned."""
        if self._out_tree is not None:
            return tree_util.tree_unflatten(self._out_tree, results)
        return build_tree(self.plan.out_tree, results)

    def _check_structure(self, tree: Any) -> None:
        try:
            fits = compatible(describe_tree(tree), self.plan.in_tree)
        except ValueError:  # deeper than the structure of any plan
            fits = False
        if not fits:
            ports = leaf_ports(self.plan.inputs)
            names = ", ".join(p.name for p in ports[:8]) + (", ..." if len(ports) > 8 else "")
            raise self._wrong_structure(str(tree), f"{len(ports)} arrays: {names}")
        if self._in_tree is None:
            self._in_tree = tree
            self.direct = self._direct_calls()

    def _wrong_structure(self, have: str, rule: str) -> PathwaysError:
        return PathwaysError(WrongStructure(program=self.plan.name, have_=have, rule=rule, where=caller()))

    def _ends_of(self, plan: Plan) -> list[tuple[Port, Any]]:
        """Returns the port and the sharding of each result of a plan."""
        return [(port, virtual_sharding(plan, port, self._slices)) for port in plan.results]

    def summary(self) -> str:
        """Returns the output of `pwc compile`: calls, placement and its reasons, transfers, schedule, memory."""
        return "\n".join([compile_summary(self.plan, self.timing), *map(str, self.pipelines)])

    def cost_analysis(self, island: str | None = None) -> dict[str, float]:
        """Returns XLA's counts for one run, by the names of `jax.stages`: flops, bytes accessed, transcendentals.

        Sums all devices of all islands, or of one island; `jax.stages` counts one device. As in `jax.stages`, bodies of
        data-dependent loops and branches count once.
        """
        costs, names = self._costs(), requested_islands(self.plan, island)
        return {what: sum(costs[name].totals[what] for name in names) for what in COSTS}

    def memory_analysis(self, island: str | None = None) -> MemoryAnalysis:
        """Returns bytes on one device, by the names of `jax.stages`: the fullest of the program, or of one island."""
        costs = self._costs()
        islands = [memory_of(self.plan, name, costs[name].code) for name in requested_islands(self.plan, island)]
        none = MemoryAnalysis("", 0, 0, 0, 0, 0, 0)
        return max(islands, key=lambda found: found.peak_memory_in_bytes, default=none)

    def _costs(self) -> dict[str, IslandCost]:
        with COMPILING:  # dropped code is compiled again
            return self._loaded.costs

    def save(self, path: str | Path, *, executables: bool = False) -> int:
        """Writes plan.bin; returns its size in bytes. `executables` adds executables for machines like this one."""
        return save_plan(process().with_executables(self.plan) if executables else self.plan, path)


def load(path: str | Path, *, dispatch: str = PARALLEL) -> Compiled:
    """Loads a plan.bin onto this process's devices. Raises PWC0601-PWC0605 and PWC0613 if it cannot run here.

    A plan that this user did not write is first read by another process: PWC0609-PWC0612 (docs/plan-files.md).
    """
    with COMPILING:
        plan = open_plan(path)
        if not plan.marked:
            plan = with_local_modules(plan)
    return Compiled(plan, path=str(path), dispatch=dispatch)
