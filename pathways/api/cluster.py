"""`pw.cluster`: the islands of programs in processes of their own, for as long as a block lasts."""

import contextlib
from collections.abc import Generator

from pathways.api.process import Process, inside_of, process
from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.topology import Topology, parse_topology
from pathways.runtime.client.cluster import Cluster
from pathways.runtime.client.controller import Controller
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.run.background import CANCEL_LOOK
from pathways.runtime.host.run.store import Poison


@contextlib.contextmanager
def cluster(topology: Topology | str | None = None, *, islands: int = 2, devices: int = 4) -> Generator[Topology]:
    """Starts a process for each host of each island; what is compiled in the block is placed there, and runs there.

    `topology` is a `pw.Topology` or a spec (`islands=2,hosts=2,devices=4`: each island is two processes of four devices
    each); without one there are `islands` of `devices` each. Every process has devices of its own, and data go from one
    to another without passing through this one (paper, 4.2 to 4.5). When the block ends the processes do; arrays that
    were made there cannot be read any more: take what is wanted out with `np.asarray`. A process that dies or freezes
    takes its island's arrays with it (PWC0910), those of others stay; the island is started anew, and the next call of
    a program finds it there.

    Host callbacks and some faults are refused there (PWC0912).
    Raises PWC0704 for a topology that is none, PWC0910 where a process does not start.

        with pw.cluster(islands=2, devices=4):
            loss = float(train_step(params, batch))
    """
    if topology is None:
        topology = f"islands={islands},devices={devices}"
    chosen = parse_topology(topology) if isinstance(topology, str) else topology
    outer = process()
    machine = Cluster(chosen, outer.platform)
    controller = Controller(machine, type(outer.controller.policy)(), fetch_limit=outer.controller.fetch_limit)

    def forget(island: PhysicalIsland, cause: Diagnostic) -> None:
        for device in island.devices:
            controller.store.lose(device, Poison(cause))

    machine.on_lost = forget
    try:
        with inside_of(Process(outer.platform, controller, topology=chosen)):
            yield chosen
            while not controller.flights.drain(CANCEL_LOOK):  # others may have waited for their turn meanwhile
                controller.cancel_elsewhere(controller.flights.all())
    finally:
        machine.close()
        controller.flights.stop()
