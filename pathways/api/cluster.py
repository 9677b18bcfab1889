"""Implements `pw.cluster` and `pw.connect`. Inside their `with` blocks, programs run on host processes that this
process starts, or on a cluster that others share.
"""

import contextlib
import time
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

from pathways.api.process import Process, attach, attached_process, inside_of, process, process_policy
from pathways.compiler.machines import Machines
from pathways.compiler.simulate.step import call_seconds
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.topology import Topology, parse_topology
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.client.remote.timed_cluster import TimedCluster
from pathways.runtime.host.run.background import CANCEL_POLL_INTERVAL_S


@contextlib.contextmanager
def cluster(
    topology: Topology | str | None = None,
    *,
    islands: int = 2,
    devices: int = 4,
    timed: bool | Mapping[str, float] = False,
) -> Generator[Topology]:
    """Starts a process for each host of each island. Programs compiled in the block are placed there and run there.

    `topology` is a `pw.Topology` or a spec (`islands=2,hosts=2,devices=4`: each island is two processes of four devices
    each). Without a topology there are `islands` islands of `devices` devices each. Every process has its own devices,
    and data moves between hosts without passing through this process (paper, 4.2 to 4.5). The processes end with the
    block, and arrays made there can no longer be read (PWC0509): copy results out with `np.asarray`. If a process
    dies or freezes, the arrays of its island are lost (PWC0910), and those of other islands stay. The island is
    restarted, and the next call of a program uses it again. Yields the topology at the start; `pw.add_island` and
    `pw.remove_island` change it.

    With `timed` the devices compute nothing: each call occupies them for the time that `Compiled.simulate` predicts,
    and values are zeros. `timed` may have seconds of computations by name. All hosts of an island are one process, so
    that hundreds of hosts fit on one machine (docs/simulation.md).

    Some faults are refused there, and so are host callbacks on islands of several hosts (PWC0912). Raises PWC0704 for
    an invalid topology, PWC0910 if a process does not start. With `timed`, raises PWC0104 for other values, and calls
    raise PWC0309 for invalid seconds.

        with pw.cluster(islands=2, devices=4):
            loss = float(train_step(params, batch))
    """
    if topology is None:
        topology = f"islands={islands},devices={devices}"
    chosen = parse_topology(topology) if isinstance(topology, str) else topology
    outer = process()
    _check_times(timed)
    if timed is False:
        machine = Cluster(chosen, outer.platform, process_policy())
    else:
        seconds_of = partial(call_seconds, machines=Machines(chosen), measured={} if timed is True else timed)
        machine = TimedCluster(chosen, outer.platform, process_policy(), seconds_of)
    inner = attached_process(machine)
    inner.controller.fetch_limit = outer.controller.fetch_limit
    with _inside(inner, machine):
        yield chosen


def _check_times(timed: object) -> None:
    """Raises PWC0104 for times that are neither a flag nor a mapping."""
    if not isinstance(timed, bool | Mapping):
        rule, advice = "True, or seconds by the names of computations", 'timed={"train_step": 0.01}'
        problem, have = "invalid times of a cluster", f"timed={timed!r}"
        error = BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller())
        raise PathwaysError(error)


@contextlib.contextmanager
def connect(
    address: str | None = None, *, name: str | None = None, keys: str | Path | None = None
) -> Generator[Topology]:
    """Runs the programs called in the block on a shared cluster. Yields the topology of the cluster.

    `address` is the name or the folder of a cluster started by `pwc cluster start`, or the HOST:PORT of a cluster on
    another machine. The default is PATHWAYS_ADDRESS. For HOST:PORT, `keys` is the folder of a client's keys
    (`pwc cluster keys`); the default is PATHWAYS_KEYS. `name` is the name of this process in `pwc status`. Clients
    share the cluster by their weights, and never see each other's arrays. When the block ends, even by an exception,
    everything that the process made there is freed (paper, 4.3 and 4.4). If PATHWAYS_ADDRESS is set, programs run on
    that cluster without this call.

    Raises PWC0918 if there is no cluster, PWC0913 if a cluster on another machine cannot be reached or refuses this
    process. Raises PWC0914 for invalid keys; calls raise PWC0917 after its controller is lost.

        with pw.connect("shared"):
            loss = float(train_step(params, batch))
    """
    machine = attach(address, name, keys)
    with _inside(attached_process(machine), machine):
        yield machine.topology


@contextlib.contextmanager
def _inside(inner: Process, machine: Attached) -> Generator[None]:
    """Uses another process object in place of this process's own, and closes its machine when the block ends."""
    controller = inner.controller
    try:
        with inside_of(inner):
            try:
                yield
            finally:
                controller.closing = True  # otherwise other threads would continue to call programs
            while (
                not controller.flights.drain(CANCEL_POLL_INTERVAL_S) or controller.flights.enqueuing
            ):  # runs of other threads
                controller.cancel_elsewhere(controller.flights.all())
                time.sleep(0.001)
    finally:
        machine.close()
        controller.flights.stop()
