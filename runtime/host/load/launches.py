"""Prepares how a computation is started on its devices: on all of them at once, or on each device separately. The
second is cheaper on CPU if the devices exchange no data. `steps.py` calls it when a plan is loaded.

There is one launcher for each computation and mesh. A launcher never waits for the data that it reads. If the devices
need no data from each other, starting them one by one is seven times cheaper on CPU than as a gang. Values between such
computations stay lists of shards. They become arrays only if something else reads them.

The loops of a launch zip without `strict`, which takes longer than a short loop: the plan states how many arguments and
results there are, and the shards of an argument are counted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Free, Run
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.platforms import platform_named
from pathways.dialect.sharding import size_of_axes
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables, Wanted
from pathways.runtime.host.devices.in_flight_limit import Gang
from pathways.runtime.host.devices.layouts import Shards, Side
from pathways.runtime.host.run.frame import AtOnce
from pathways.runtime.host.run.poison import Poison

MAX_KEPT_RESULT_BYTES = 1 << 16
"""Maximum size of a result that is kept until its execution is seen to be done."""


class Launchers(NamedTuple):
    """The two ways to launch one computation: as a step of a run, and alone (`AtOnce`)."""

    launch: "Launcher"
    at_once: AtOnce | None = None


class Launcher(Protocol):
    """Launches a computation. All its calls on a mesh share one launcher: one per call would not fit the CPU cache."""

    def __call__(
        self, values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool, /
    ) -> Sequence[Any]:
        """Reads and fills slots of a frame.

        Returns tokens if the in-flight limit (`due`) or the run (`last`) needs them.
        """
        ...


def starts_apart(computation: Computation, platform: str) -> bool:
    """Returns True if the devices of a computation are started one by one."""
    return bool(computation.local) and size_of_axes(computation.axes) <= platform_named(platform).apart


def code_of(computation: Computation, devices: Sequence[pjrt.Device]) -> list[Wanted]:
    """Returns the modules of a computation, each with the devices that run it together.

    A module that runs on no device of this process is left out.
    """
    here = [device for device in devices if pjrt.is_here(device)]
    if not here or starts_apart(computation, devices[0].platform):
        return [(computation.local, (device,)) for device in here]
    return [(computation.module, tuple(devices))]


def kept_as_shards(plan: Plan) -> set[tuple[int, int]]:
    """Finds each (stream, slot) that is written and read only by computations that start device by device."""
    made: set[tuple[int, int]] = set()
    read: set[tuple[int, int]] = set()
    for at, stream in enumerate(plan.streams):
        for i in stream.instructions:
            if isinstance(i, Run) and starts_apart(plan.computations[i.computation], plan.platform):
                made.update((at, s) for s in i.outputs)
            elif not isinstance(i, Free):
                read.update((at, s) for s in i.effects[0])
        read.update((at, p.slot) for p in plan.results if p.island == stream.island)
    return made - read


def launch_apart(
    computation: Computation, devices: Sequence[pjrt.Device], sides: Sequence[Side], kept: Sequence[bool],
    gang: Gang, executables: Executables,
) -> Launchers:  # fmt: skip
    """Prepares launches of a computation device by device. `sides`: result layouts. `kept` results stay shards."""
    types = [pjrt.shard_type(t, s.sharding) for t, s in zip(computation.outputs, sides, strict=True)]
    starts: list[tuple[Any, Any]] = []
    for module, (device,) in code_of(computation, devices):
        executable = executables.load(module, [device])
        handlers = pjrt.result_handlers(types, [pjrt.on_device(device)] * len(types))
        starts.append((executable.execute_sharded, handlers))
    ends = [
        Shards if keep else pjrt.assembler(t, s.real)
        for t, s, keep in zip(computation.outputs, sides, kept, strict=True)
    ]
    started, shards_of = gang.started_each, pjrt.shards_of
    small = smallest(types)
    of_nothing = [()] * len(starts)

    def launch(
        values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
    ) -> Sequence[Any]:
        columns: list[Sequence[Any]] = []
        for index in inputs:
            value = values[index]
            shards = value if type(value) is Shards else shards_of(value)
            if len(shards) != len(starts):
                raise ValueError(f"an argument has {len(shards)} shards for {len(starts)} devices")
            columns.append(shards)
        rows = zip(*columns) if columns else of_nothing  # noqa: B905
        made: list[Sequence[Any]] = []
        tokens: list[Any] = []
        if due or last:  # no comprehensions here: each execution would record their stack frame
            for (execute, handlers), row in zip(starts, rows):  # noqa: B905
                results = execute(row, launch_id=launch_id, with_tokens=True)
                tokens.append(results.consume_token())
                made.append(results.consume_with_handlers(handlers))
        else:
            for (execute, handlers), row in zip(starts, rows):  # noqa: B905
                made.append(execute(row, launch_id=launch_id).consume_with_handlers(handlers))
        if due:
            started([(t, None if small is None else arrays[small]) for t, arrays in zip(tokens, made, strict=True)])
        for slot, end, column in zip(outputs, ends, zip(*made)):  # noqa: B905
            values[slot] = end(column)
        return tokens

    def start(row: Sequence[Any], launch_id: int) -> tuple[Sequence[Any], list[Any]]:
        values, count = [*row, *ends], len(row)
        with pjrt.without_frames():
            tokens = launch(values, range(count), range(count, len(values)), launch_id, False, True)
        return tokens, values[count:]

    def keep(tokens: Sequence[Any], arrays: Sequence[Any]) -> None:
        results = [None] * len(tokens) if small is None else shards_of(arrays[small])
        started(list(zip(tokens, results, strict=True)))

    return Launchers(launch, AtOnce(start, keep))


def as_gang(executable: pjrt.Executable, handlers: pjrt.Handlers, gang: Gang, small: int | None) -> Launchers:
    """Prepares to launch a computation on all devices at once. `small`: the index of a small result, if any."""
    execute, started = executable.execute_sharded, gang.started

    def launch(
        values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
    ) -> Sequence[Any]:
        operands = [values[i] for i in inputs]
        tokens: Sequence[Any] = _NO_TOKENS
        if due or last:
            results = execute(operands, launch_id=launch_id, with_tokens=True)
            tokens = [results.consume_token()]
            arrays = results.consume_with_handlers(handlers)
            if due:
                started((tokens[0], None if small is None else arrays[small]))
        else:
            arrays = execute(operands, launch_id=launch_id).consume_with_handlers(handlers)
        for slot, array in zip(outputs, arrays):  # noqa: B905
            values[slot] = array
        return tokens

    def start(row: Sequence[Any], launch_id: int) -> tuple[Sequence[Any], list[Any]]:
        results = execute(row, launch_id=launch_id, with_tokens=True)
        tokens = [results.consume_token()]
        return tokens, results.consume_with_handlers(handlers)

    def keep(tokens: Sequence[Any], arrays: Sequence[Any]) -> None:
        started((tokens[0], None if small is None else arrays[small]))

    return Launchers(launch, AtOnce(start, keep))


_NO_TOKENS: Sequence[Any] = ()


def elsewhere(
    values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
) -> Sequence[Any]:
    """Replaces a launch if all devices of the gang belong to other hosts of the island. Its results have no shard here.

    Raises ValueError if an argument is poison, since the argument is poison on the other hosts, too.
    """
    if any(isinstance(values[i], Poison) for i in inputs):
        raise ValueError("an argument has failed")
    for slot in outputs:
        values[slot] = Shards()
    return _NO_TOKENS


def smallest(outputs: Sequence[ArrayType]) -> int | None:
    """Returns the index of the smallest result; None if it is too large to be kept longer than needed."""
    number = min(range(len(outputs)), key=lambda n: outputs[n].bytes, default=None)
    return None if number is None or outputs[number].bytes > MAX_KEPT_RESULT_BYTES else number
