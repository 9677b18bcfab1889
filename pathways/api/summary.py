"""Formats the summary of a plan that `pwc compile` and `Compiled.summary` print: one screen with calls, islands,
transfers, schedule and memory. Other commands reuse its tables.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from pathways.compiler.pass_manager import Timing
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Recv, Run, Send
from pathways.dialect.plan.leaves import leaf_ports
from pathways.dialect.plan.memory import by_kind, peak
from pathways.dialect.plan.nouns import Layout, Plan, Stream
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.sharding import Sharding
from pathways.dialect.topology import readable as size

WIDEST = 120
"""Maximum width in characters to which cells are padded, so that one long cell does not widen every row."""
LONGEST = 4000
"""Maximum number of characters of a cell that are shown."""


def table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Formats rows as left-aligned columns."""
    widths = [min(WIDEST, max(len(r[i]) for r in rows)) for i in range(len(rows[0]))] if rows else []
    return "\n".join(indent + "  ".join(_cell(c, w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def dcn_bytes(plan: Plan) -> tuple[int, int]:
    """Counts the transfers between islands in one run, and their bytes."""
    kinds: Counter[tuple[ArrayType, Layout, Layout]] = Counter()
    for (source, slot), (target, there) in channels(plan):
        kind = source.kind_of[slot]
        kinds[kind.type, kind.layout, target.kind_of[there].layout] += 1
    total = 0
    for (type_, here, there), count in kinds.items():
        total += count * _moved(type_, plan.sharding(here), plan.sharding(there))
    return kinds.total(), total


def _moved(type_: ArrayType, here: Sharding, there: Sharding) -> int:
    """Counts the bytes that one transfer between two islands moves."""
    ids = [-1 - i for i in range(there.mesh.size)]
    return plan_reshard(type_.shape, here, there, range(here.mesh.size), ids).moved * type_.shard_bytes(())


def channels(plan: Plan) -> Iterable[tuple[tuple[Stream, int], tuple[Stream, int]]]:
    """Finds the stream and slot at both ends of every transfer between islands."""
    received = {i.channel: (s, i.slot) for s in plan.streams for i in s.instructions if isinstance(i, Recv)}
    for stream in plan.streams:
        for instruction in stream.instructions:
            if isinstance(instruction, Send):
                yield (stream, instruction.slot), received[instruction.channel]


def compile_summary(plan: Plan, timing: Timing) -> str:
    """Formats the summary of a plan. `timing` has the times of the passes; a plan from a file has none."""
    runs = list(plan.runs())
    used = len({r.computation for r in runs})
    moves, crossing = dcn_bytes(plan)
    lines = [
        f"program  {plan.name} for {plan.platform}: {len(leaf_ports(plan.inputs))} inputs, "
        f"{len(leaf_ports(plan.results))} results",
        f"calls    {len(runs)} of {used} distinct computations{_awaited(plan)}",
        f"islands  {plan.topology}",
        f"moved    {moves} transfers between islands, {size(crossing)} a run{in_bodies(plan)}",
        f"placed   {plan.placement}" + ("" if plan.reproducible else "; NOT REPRODUCIBLE: a time limit decided"),
        table([[s.name, f"-> {s.island} {list(s.devices)}", s.reason] for s in plan.slices] or [["no slices"]], "  "),
        *_reshards(plan),
        *_schedule(plan.schedule),
        f"memory   peak a device, temporaries of executables {plan.temporaries}" + _unchecked(plan),
        table([_memory(plan, s.island) for s in plan.streams] or [["none"]], "  "),
        *_time(timing),
    ]
    return "\n".join(lines)


def _time(timing: Timing) -> list[str]:
    shown = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in timing.passes.items())
    return [f"time     {shown}"] if shown else []


MAX_SHOWN_ROWS = 8
"""Maximum number of reshards that the summary lists."""


def _reshards(plan: Plan) -> list[str]:
    """Lists every reshard inside a slice, with its bytes for each run and the user's line."""
    found = [d for d in plan.decisions if d.kind == "reshard"]
    if not found:
        return ["reshard  none inside a slice"]
    times = sum(len(d.steps) for d in found)
    total = sum(d.bytes * len(d.steps) for d in found)
    rows = [
        [d.name, d.chosen, size(d.bytes * len(d.steps)), d.reason, d.where.at if d.where else ""]
        for d in sorted(found, key=lambda d: -d.bytes * len(d.steps))[:MAX_SHOWN_ROWS]
    ]
    more = (
        [f"  ... and {len(found) - MAX_SHOWN_ROWS} more: pwc why PLAN reshard"] if len(found) > MAX_SHOWN_ROWS else []
    )
    return [f"reshard  {times} inside slices, {size(total)} a run", table(rows, "  "), *more]


def _schedule(schedule: Schedule) -> list[str]:
    return [f"schedule {schedule.name}: {schedule_text(schedule)}"]


def schedule_text(schedule: Schedule) -> str:
    """Describes the pipeline schedule, its bubble with the lower bound over all orders, and the note on it."""
    parts: list[str] = []
    if schedule.microbatches:
        parts.append(
            f"{schedule.stages} stages on {schedule.slices} slices, {schedule.microbatches} microbatches; "
            f"bubble {schedule.bubble:.1%} (at least {schedule.bound:.1%}) for equal stages"
        )
    return "; ".join([*parts, *([schedule.note] if schedule.note else [])]) or "calls as the program has them"


def _memory(plan: Plan, island: str) -> list[str]:
    """Describes the peak memory of an island and its largest owners."""
    found = peak(plan, island)
    owners = ", ".join(f"{owner} {size(bytes_)}" for owner, bytes_ in by_kind(found.owners)[:4])
    when = "at the start" if found.step < 0 else f"at step {found.step}"
    return [island, size(found.bytes), when, owners, _calls(runs_of(plan, island))]


def in_bodies(plan: Plan) -> str:
    """Describes the transfers of bodies for each execution."""
    moved = [dcn_bytes(plan.of_body(number)) for number in range(len(plan.bodies))]
    count, crossing = (sum(column) for column in zip((0, 0), *moved, strict=True))
    return f"; in bodies {count}, {size(crossing)} each time" if count else ""


def _awaited(plan: Plan) -> str:
    """Lists the branches on data for which the controller waits."""
    kinds: Counter[str] = Counter()
    for streams in plan.all_streams:
        found = {i.step: i.kind for s in streams for i in s.instructions if isinstance(i, Branch)}
        kinds.update(found.values())
    shown = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return f"; awaited: {shown}, {len(plan.bodies)} bodies" if kinds else ""


def runs_of(plan: Plan, island: str) -> list[Run]:
    return [i for i in plan.stream(island).instructions if isinstance(i, Run)]


def _calls(runs: list[Run]) -> str:
    names = Counter(r.name for r in runs)
    shown = [f"{n} x {name}" if n > 1 else name for name, n in names.most_common(4)]
    return ", ".join(shown) + (", ..." if len(names) > 4 else "")


def _unchecked(plan: Plan) -> str:
    return "" if any(i.memory for i in plan.topology.islands) else "; not checked: the topology states no memory"
