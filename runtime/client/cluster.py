"""A cluster of one client, which has the controller in its own process: islands in processes of their own."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology
from pathways.runtime.client.attached import Attached
from pathways.runtime.client.remote_island import RemoteIsland
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.loop import Loop
from pathways.runtime.control.member import all_ranks
from pathways.runtime.control.own_client import OwnClient
from pathways.runtime.control.scheduling import SchedulingPolicy
from pathways.runtime.launch.local_hosts import CONTROLLER, LocalLauncher
from pathways.runtime.launch.reach import connect_to_host
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import Parcel
from pathways.runtime.wire.errors import NotOverProcesses

LOOK = 0.1
"""Seconds between two looks at hosts that start."""
GOODBYE = 30.0
"""Seconds that the processes of hosts may take to end, once killed."""


class Cluster(Attached):
    """The machine of a process that has started a cluster for itself."""

    carried_bytes: ClassVar[int] = 1 << 18  # to copy them costs less than to ask hosts whether they have them

    def __init__(self, topology: Topology, platform: str, policy: SchedulingPolicy) -> None:
        """Starts the processes of each island. Raises PWC0910 where one does not start, PWC0912 where all would take
        the same devices."""
        if platform_named(platform).made_at_will is None:
            have, rule = f"{platform} devices, which every process would take", "devices that are made at will: cpu"
            raise PathwaysError(NotOverProcesses(what="a cluster on one machine", have_=have, rule=rule))
        self._folder = Path(tempfile.mkdtemp(prefix="pathways-"))  # of mode 0700
        self._loop, self._listener = Loop(), socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / CONTROLLER))
        self._listener.listen(1024)
        self._launcher = LocalLauncher(self._folder, platform, ranks_in(topology), is_temporary=True)
        self._controller = ClusterController(
            self._loop, topology, platform, policy, self._launcher, str(self._folder),
            log=lambda line: None,  # who uses what is lost gets an error
        )  # fmt: skip
        self._loop.listen(self._listener, self._controller.accept)
        own = self._own = OwnClient(self._loop, self._controller)
        self._over = threading.Event()
        start_thread("pathways-loop", self._run)
        welcome = own.receive()
        assert isinstance(welcome, m.Welcome)
        super().__init__(str(self._folder), own, welcome, _connect)
        own.on_end = self._from_host
        try:
            self._wait_for_start()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        self._loop.run()
        self._over.set()

    def _wait_for_start(self) -> None:
        """Waits until all hosts are there. Raises PWC0910 as soon as one has ended before."""
        ranks = list(all_ranks(self._controller.members.all))
        with Activity("starting", len(ranks), "hosts") as starting, self._changed:
            while not all(place.addresses for place in self._places.values()):
                self._check_there()
                if (cause := next((p.cause for p in self._places.values() if p.cause is not None), None)) is not None:
                    raise PathwaysError(cause)
                self._changed.wait(LOOK)  # Ctrl-C ends it
                starting.done = sum(rank.peer is not None for rank in ranks)
        for name in self._places:
            self.host(name)

    def _submit(self, run: m.Submit, parcels: Sequence[Parcel], hosts: Sequence[RemoteIsland]) -> None:
        self._own.submit(self._held_for_run(), run, parcels)

    def keep_for_ever(self) -> None:
        super().keep_for_ever()
        self._loop.abandon()

    def close(self) -> None:
        """Ends all processes."""
        if self.is_forked:
            return
        super().close()
        self._loop.call(self._controller.close)
        self._over.wait(GOODBYE)
        self._launcher.wait(GOODBYE)
        self._listener.close()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _connect(said: str, name: str) -> Connection:
    return connect_to_host(said, name, None, elsewhere=False)
