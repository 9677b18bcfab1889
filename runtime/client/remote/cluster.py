"""Starts a cluster that only this process uses. The controller runs in this process, and the hosts of each island in
processes of their own. `pw.cluster` calls it.
"""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.member import all_ranks
from pathways.runtime.control.own_client import OwnClient
from pathways.runtime.control.scheduling import SchedulingPolicy
from pathways.runtime.launch.local_hosts import CONTROLLER, LocalLauncher
from pathways.runtime.launch.reach import connect_to_host
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import BACKLOG
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import Parcel
from pathways.runtime.wire.errors import NoCluster, NotOverProcesses
from pathways.runtime.wire.loop import Loop

START_POLL_S = 0.1
"""Interval at which the progress of starting hosts is updated."""
HOST_EXIT_TIMEOUT_S = 30.0
"""Time limit of `close` for killed host processes to exit."""


class Cluster(Attached):
    """The machine of a process that has started its own cluster."""

    carried_bytes: ClassVar[int] = 1 << 18  # copying them is faster than waiting until hosts confirm receipt

    def __init__(self, topology: Topology, platform: str, policy: SchedulingPolicy) -> None:
        """Starts the processes of each island.

        Raises PWC0910 if one does not start, PWC0912 if all would use the same devices.
        """
        if platform_named(platform).made_at_will is None:
            have, rule = f"{platform} devices: every host would use all of them", "devices created on demand: cpu"
            raise PathwaysError(NotOverProcesses(what="a cluster on one machine", have_=have, rule=rule))
        with contextlib.ExitStack() as stack:  # reverts a partial start
            try:
                self._start(topology, platform, policy, stack)
            except OSError as error:
                raise PathwaysError(NoCluster(address=tempfile.gettempdir(), reason=str(error))) from error
            self._wait_for_start()
            self._made = stack.pop_all()

    def _start(
        self, topology: Topology, platform: str, policy: SchedulingPolicy, stack: contextlib.ExitStack
    ) -> None:  # fmt: skip
        """Starts the controller, which starts the hosts. The stack receives the cleanup of both."""
        folder = Path(tempfile.mkdtemp(prefix="pathways-"))  # of mode 0700
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._loop, self._is_running = Loop(), False
        stack.callback(self._close_loop)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / CONTROLLER))
        listener.listen(BACKLOG)
        launcher = self.make_launcher(folder, topology, platform)
        stack.callback(launcher.wait, HOST_EXIT_TIMEOUT_S)
        self._controller = ClusterController(
            self._loop, topology, platform, policy, launcher, str(folder),
            log=lambda line: None,  # users of lost islands get errors
        )  # fmt: skip
        stack.callback(self._stop)
        self._loop.listen(listener, self._controller.accept)
        self._own = OwnClient(self._loop, self._controller)
        super().__init__(self._loop, str(folder), self._own, self._own.welcome, _connect)
        stack.callback(super().close)
        self._own.on_end_of_run = self._from_host
        self._own.begin(self.deliver)
        self._loop.start()
        self._is_running = True

    def make_launcher(self, folder: Path, topology: Topology, platform: str) -> LocalLauncher:
        """Makes what starts the hosts. Raises OSError."""
        return LocalLauncher(folder, platform, ranks_in(topology), is_temporary=True)

    def _wait_for_start(self) -> None:
        """Waits until all hosts are connected. Raises PWC0910 as soon as one exits before that."""
        ranks = list(all_ranks(self._controller.members.all))

        def is_over() -> bool:
            self._check_there()
            for place in self._places.values():
                if place.cause is not None:
                    raise PathwaysError(place.cause)
            return all(place.addresses for place in self._places.values())

        with Activity("starting", len(ranks), "hosts") as starting:
            while not self._changed.wait_for(is_over, START_POLL_S):
                starting.done = sum(rank.peer is not None for rank in ranks)
        for name in self._places:
            self.host(name)

    def _submit(self, run: m.Submit, parcels: Sequence[Parcel], hosts: Sequence[RemoteIsland]) -> None:
        self._own.submit(self._held_for_run(), run, parcels)

    def _stop(self) -> None:
        """Makes the controller terminate all hosts, and waits until its loop ends."""
        self._loop.call(self._controller.close)
        if self._is_running:
            self._loop.over.wait(HOST_EXIT_TIMEOUT_S)

    def _end_loop(self) -> None:
        """Does nothing: the controller stops the loop after its hosts (`_stop`)."""

    def _close_loop(self) -> None:
        if not self._is_running:  # otherwise the loop's thread closes it
            self._loop.close()

    def close(self) -> None:
        """Terminates all processes of the cluster."""
        if not self.is_forked:
            self._made.close()


def _connect(endpoints: str, name: str) -> Connection:
    return connect_to_host(endpoints, name, None, elsewhere=False)
