"""`pw.cluster` and `pw.connect`: islands in processes of their own, or of a cluster, for as long as a block lasts."""

import contextlib
import time
from collections.abc import Generator
from pathlib import Path

from pathways.api.process import Process, attach, attached_process, inside_of, process, process_policy
from pathways.dialect.topology import Topology, parse_topology
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.host.run.background import CANCEL_LOOK


@contextlib.contextmanager
def cluster(topology: Topology | str | None = None, *, islands: int = 2, devices: int = 4) -> Generator[Topology]:
    """Starts a process for each host of each island; what is compiled in the block is placed there, and runs there.

    `topology` is a `pw.Topology` or a spec (`islands=2,hosts=2,devices=4`: each island is two processes of four devices
    each); without one there are `islands` of `devices` each. Every process has devices of its own, and data go from one
    to another without passing through this one (paper, 4.2 to 4.5). When the block ends the processes do; arrays that
    were made there cannot be read any more: take what is wanted out with `np.asarray`. A process that dies or freezes
    takes its island's arrays with it (PWC0910), those of others stay; the island is started anew, and the next call of
    a program finds it there. Gives the topology at the start; `pw.add_island` and `pw.remove_island` change it.

    Some faults are refused there, and host callbacks on islands of several hosts (PWC0912).
    Raises PWC0704 for a topology that is none, PWC0910 where a process does not start.

        with pw.cluster(islands=2, devices=4):
            loss = float(train_step(params, batch))
    """
    if topology is None:
        topology = f"islands={islands},devices={devices}"
    chosen = parse_topology(topology) if isinstance(topology, str) else topology
    outer = process()
    machine = Cluster(chosen, outer.platform, process_policy())
    inner = attached_process(machine)
    inner.controller.fetch_limit = outer.controller.fetch_limit
    with _inside(inner, machine):
        yield chosen


@contextlib.contextmanager
def connect(
    address: str | None = None, *, name: str | None = None, keys: str | Path | None = None
) -> Generator[Topology]:
    """Runs what is called in the block on a cluster that other processes use, too; gives its topology.

    `address` is the name or the folder of a cluster that `pwc cluster start` has started, or the HOST:PORT at which one
    of another machine listens; PATHWAYS_ADDRESS without. For the latter `keys` is the folder of a client's keys
    (`pwc cluster keys`); PATHWAYS_KEYS without.
    `name` is what `pwc status` calls this process. Clients have shares of the cluster by their weights, and never see
    each other's arrays; when the block ends, however it ends, whatever it has made there goes (paper, 4.3 and 4.4).
    With PATHWAYS_ADDRESS set, programs run on that cluster without this.

    Raises PWC0918 where there is no cluster, PWC0913 where another machine's is not reached or does not let this
    process in, PWC0914 for keys that are none; PWC0917 in calls once its controller is gone.

        with pw.connect("shared"):
            loss = float(train_step(params, batch))
    """
    machine = attach(address, name, keys)
    with _inside(attached_process(machine), machine):
        yield machine.topology


@contextlib.contextmanager
def _inside(inner: Process, machine: Attached) -> Generator[None]:
    """Takes another process in place of this one's own, and closes its machine when the block ends."""
    controller = inner.controller
    try:
        with inside_of(inner):
            try:
                yield
            finally:
                controller.closing = True  # or other threads would go on calling programs
            while not controller.flights.drain(CANCEL_LOOK) or controller.flights.enqueuing:  # of other threads
                controller.cancel_elsewhere(controller.flights.all())
                time.sleep(0.001)
    finally:
        machine.close()
        controller.flights.stop()
