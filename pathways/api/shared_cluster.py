"""Clusters that several processes use: started and looked at from here, by `pwc cluster`."""

import time

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Topology
from pathways.runtime.host.devices import pjrt
from pathways.runtime.launch.local_cluster import ask, start_controller
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.spawn import last_words
from pathways.runtime.status import Status, read_status
from pathways.runtime.wire.errors import NoCluster, NotOverProcesses

READY = 180.0
"""Seconds that the hosts of a cluster may take to come."""


def start_shared(address: str, topology: Topology, policy: str) -> Status:
    """Starts a cluster on this machine, and waits until all of its hosts are there; it stays when this process ends.

    Raises PWC0912 where all hosts would take the same devices, PWC0918 where it does not start, PWC0919 where there is
    one of this address.
    """
    platform = pjrt.default_platform()
    if platform_named(platform).made_at_will is None:
        have, rule = f"{platform} devices, which every process would take", "devices that are made at will: cpu"
        raise PathwaysError(NotOverProcesses(what="a cluster on one machine", have_=have, rule=rule))
    folder = start_controller(address, topology, platform, policy)
    until = time.monotonic() + READY
    while True:
        said = ask(address, "status")
        states = {island["name"]: island["state"] for island in said["islands"]}
        if all(state == "up" for state in states.values()):
            return read_status(said)
        late = time.monotonic() > until
        if late or "away" in states.values():
            missing = [name for name, state in states.items() if state != "up"]
            words = "; ".join(
                f"{name}: {last_words(folder / LOGS / f'{name}.log') or 'it has printed nothing'}" for name in missing
            )
            ask(address, "stop")  # whose logs go with it
            raise PathwaysError(NoCluster(address=str(folder), reason=f"not all hosts came; {words}"))
        time.sleep(0.05)
