"""Implements `pw.trace`, which records when computations run on each device. It writes one file for the Perfetto viewer
(https://ui.perfetto.dev).
"""

import contextlib
from collections.abc import Generator
from pathlib import Path

from pathways.api.pictures import Trace
from pathways.api.process import process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.files import write_whole
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.cluster_recorder import ClusterRecorder
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.host.observe import perfetto
from pathways.runtime.host.observe.recorder import Recorder, RunRecorder


@contextlib.contextmanager
def trace(path: str | Path) -> Generator[Trace]:
    """Records all runs of this process during the block, and writes them to `path` in Perfetto's format.

    The file has a process for each island and a thread for each device. It shows when computations were enqueued, ready
    and executed, the reason of each gap, and the planned times. Arrows follow transfers; the controller and the runs of
    each client have their own rows. Waits for runs in flight. Costs 10 to 20 % while it records, nothing otherwise.
    Raises PWC0606 if the file cannot be written. The value of `with ... as` shows the last run in a notebook, and
    `.visualize("run.html")` draws it.

    Inside `pw.cluster` and `pw.connect` it records all hosts, on one clock; a note names those lost meanwhile. On a
    shared cluster it records only the runs of this process.
    """
    controller = process().controller
    if any(isinstance(o, RunRecorder) for o in controller.observers):
        problem, rule = "a trace is being recorded already", "one trace at a time"
        error = BadArguments(
            problem=problem,
            have_=str(path),
            rule=rule,
            advice="end the `with` block of the first trace",
            where=caller(),
        )
        raise PathwaysError(error)
    machine = controller.machine
    recorder = ClusterRecorder(machine) if isinstance(machine, Hosts) else Recorder()
    recorder.start()
    try:
        with controller.observed_by(recorder):
            try:
                yield Trace(Path(path))
            finally:
                controller.background.drain()
                controller.flights.drain()
    finally:
        found = recorder.stop()
        write_whole(Path(path), perfetto.write(found, machine.islands, hosts=not machine.is_local))
