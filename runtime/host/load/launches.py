"""Starting the devices of a gang one by one, where none needs another: seven times cheaper on CPU than as a gang.

Values between such computations stay lists of shards; an array is made of one only where it is read otherwise.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Free, Run
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.platforms import platform_named
from pathways.dialect.sharding import size_of_axes
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables, Wanted
from pathways.runtime.host.devices.in_flight_limit import Gang
from pathways.runtime.host.devices.layouts import Shards, Side
from pathways.runtime.host.run.poison import Poison

SMALL = 1 << 16
"""The most bytes of a result that may be kept until its execution is seen to be done."""


class Launcher(Protocol):
    """Launches a computation; one for all calls of it on a mesh, since the cache has no room for one each."""

    def __call__(
        self, values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool, /
    ) -> Sequence[Any]:
        """Reads and fills slots of a frame; returns tokens where the in-flight limit or the run (`last`) wants them."""
        ...


def starts_apart(computation: Computation, platform: str) -> bool:
    """Returns whether the devices of a computation are started one by one."""
    return bool(computation.local) and size_of_axes(computation.axes) <= platform_named(platform).apart


def code_of(computation: Computation, devices: Sequence[pjrt.Device]) -> list[Wanted]:
    """Returns the modules of a computation on these devices, each with the devices that run it together; those of which
    no device is of this process are not loaded here."""
    here = [device for device in devices if pjrt.is_here(device)]
    if not here or starts_apart(computation, devices[0].platform):
        return [(computation.local, (device,)) for device in here]
    return [(computation.module, tuple(devices))]


def kept_as_shards(plan: Plan) -> set[tuple[int, int]]:
    """Finds the slots, by stream, that only computations started one by one make and read."""
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
) -> Launcher:  # fmt: skip
    """Prepares to launch a computation device by device. `sides` are its results' layouts; `kept` ones stay shards."""
    shards = [pjrt.shard_type(t, s.sharding) for t, s in zip(computation.outputs, sides, strict=True)]
    starts: list[tuple[Any, Any]] = []
    for module, (device,) in code_of(computation, devices):
        executable = executables.load(module, [device])
        handlers = pjrt.result_handlers(shards, [pjrt.on_device(device)] * len(shards))
        starts.append((executable.execute_sharded, handlers))
    ends = [
        Shards if keep else pjrt.assembler(t, s.real)
        for t, s, keep in zip(computation.outputs, sides, kept, strict=True)
    ]
    started, shards_of, without_frames = gang.started_each, pjrt.shards_of, pjrt.without_frames
    small = smallest(shards)
    of_nothing = [()] * len(starts)

    def launch(
        values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
    ) -> Sequence[Any]:
        columns = [v if type(v := values[i]) is Shards else shards_of(v) for i in inputs]
        rows = zip(*columns, strict=True) if columns else of_nothing
        made: list[Sequence[Any]] = []
        tokens: list[Any] = []
        with without_frames():  # no comprehension here: its frame is one more that each execution looks at
            if due or last:
                for (execute, handlers), row in zip(starts, rows, strict=True):
                    results = execute(row, launch_id=launch_id, with_tokens=True)
                    tokens.append(results.consume_token())
                    made.append(results.consume_with_handlers(handlers))
            else:
                for (execute, handlers), row in zip(starts, rows, strict=True):
                    made.append(execute(row, launch_id=launch_id).consume_with_handlers(handlers))
            if due:
                started([(t, None if small is None else arrays[small]) for t, arrays in zip(tokens, made, strict=True)])
            for slot, end, column in zip(outputs, ends, zip(*made, strict=True), strict=True):
                values[slot] = end(column)
        return tokens

    return launch


def as_gang(executable: pjrt.Executable, handlers: pjrt.Handlers, gang: Gang, small: int | None) -> Launcher:
    """Prepares to launch a computation on all devices at once. `small`: the number of a small result, if any."""
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
        for slot, array in zip(outputs, arrays, strict=True):
            values[slot] = array
        return tokens

    return launch


_NO_TOKENS: Sequence[Any] = ()


def elsewhere(
    values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
) -> Sequence[Any]:
    """Launches nothing, since other hosts of the island have all devices of the gang: this one has none of its results.

    Raises ValueError for poison: it is poison there, too.
    """
    if any(isinstance(values[i], Poison) for i in inputs):
        raise ValueError("an argument is not there")
    for slot in outputs:
        values[slot] = Shards()
    return _NO_TOKENS


def smallest(outputs: Sequence[ArrayType]) -> int | None:
    """Returns the number of the smallest result; None where it is too large to be kept a little longer than needed."""
    number = min(range(len(outputs)), key=lambda n: outputs[n].bytes, default=None)
    return None if number is None or outputs[number].bytes > SMALL else number
