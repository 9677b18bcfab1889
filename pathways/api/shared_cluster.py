"""Starts clusters that several processes share, on this machine or through Ray, and waits until their hosts are
connected. `pwc cluster start` calls it. The cluster outlives the calling process.
"""

import time
from pathlib import Path

from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Topology
from pathways.runtime.host.devices import pjrt
from pathways.runtime.launch.host_start import log_of
from pathways.runtime.launch.local_cluster import MemberPort, start_controller
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.ray_cluster import RayRequest, start_controller_by_ray
from pathways.runtime.launch.reach import ask
from pathways.runtime.launch.spawn import last_words
from pathways.runtime.status import Status, read_status
from pathways.runtime.wire.errors import NoCluster, NotOverProcesses

READY_TIMEOUT_S = 180.0
"""Time limit for all hosts of a cluster to connect."""
RESOURCE_WAIT_S = 5.0
"""After this time, an island that waits for free Ray resources is no longer waited for."""


def start_shared(address: str, topology: Topology, policy: str, port: MemberPort | None = None) -> Status:
    """Starts a cluster on this machine, and waits until all hosts are connected. It outlives this process.

    Does not wait for hosts that join by themselves (`port`).

    Raises PWC0912 if all hosts would use the same devices, PWC0918 if the cluster does not start, PWC0919 if there is
    one at this address.
    """
    platform = pjrt.default_platform()
    joined = port is not None and port.join
    if platform_named(platform).made_at_will is None and not joined:
        have, rule = f"{platform} devices, which every process would use", "devices that JAX creates on demand: cpu"
        raise PathwaysError(NotOverProcesses(what="a cluster on one machine", have_=have, rule=rule))
    return _await_hosts(address, start_controller(address, topology, platform, policy, port), joined=joined)


def start_on_ray(address: str, request: RayRequest, topology: Topology | None, policy: str) -> Status:
    """Starts a cluster whose hosts Ray starts, and waits until they are connected. It outlives this process.

    Without a topology, Ray's nodes define the islands. Does not wait for an island without free Ray resources: its
    hosts connect when resources are free. Raises the errors of `start_controller_by_ray`, and PWC0918.
    """
    return _await_hosts(address, start_controller_by_ray(address, request, topology, policy))


def _await_hosts(address: str, folder: Path, *, joined: bool = False) -> Status:
    """Waits until all hosts of a cluster are connected, or wait for resources. Raises PWC0918 if a host fails."""
    with Activity("starting hosts") as starting:
        return _await_settled(address, folder, starting, joined=joined)


def _await_settled(address: str, folder: Path, starting: Activity, *, joined: bool) -> Status:
    until = time.monotonic() + READY_TIMEOUT_S
    settled = 0.0
    while True:
        answer = ask(address, "status")
        states = {island["name"]: island["state"] for island in answer["islands"]}
        starting.done, starting.total, starting.unit = list(states.values()).count("up"), len(states), "islands"
        starting.detail = ", ".join(f"{i['name']} waits for {i['waits']}" for i in answer["islands"] if i["waits"])
        if joined:
            return read_status(answer)
        if all(island["state"] == "up" or island["waits"] for island in answer["islands"]):
            settled = settled or time.monotonic()
            if all(state == "up" for state in states.values()) or time.monotonic() - settled > RESOURCE_WAIT_S:
                return read_status(answer)
        else:
            settled = 0.0
        late = time.monotonic() > until
        if late or "away" in states.values():
            missing = [host["name"] for i in answer["islands"] if i["state"] != "up" for host in i["hosts"]]
            words = "; ".join(f"{name}: {last_words(log_of(folder / LOGS, name)) or 'no output'}" for name in missing)
            ask(address, "stop")  # also deletes the logs, which were read above
            raise PathwaysError(NoCluster(address=str(folder), reason=f"not all hosts connected; {words}"))
        time.sleep(0.05)
