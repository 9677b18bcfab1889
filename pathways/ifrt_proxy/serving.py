"""Implements `pw.proxy`, which serves devices of this process or of a cluster to unmodified JAX programs. `pwc proxy`
calls it.
"""

import contextlib
import ipaddress
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pathways.api.process import Process, process
from pathways.compiler.placement.default import kind_of_made
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.topology import Island, Topology
from pathways.dialect.user_line import caller
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import OpenProxy
from pathways.ifrt_proxy.server import ProxyServer

MAX_PORT = 65_535
ISLAND = "proxied"
"""The island of a process without a cluster whose devices are created on demand."""


@dataclass(frozen=True)
class Proxy:
    """A running proxy: its address, its devices, and the environment variables that a client needs."""

    address: str
    island: str
    devices: int

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables with which an unmodified JAX program uses these devices."""
        return {
            "JAX_PLATFORMS": "proxy,cpu",  # JAX computes constants on the CPU, for example in `lax.scan`
            "JAX_BACKEND_TARGET": f"grpc://{self.address}",
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        }


@contextlib.contextmanager
def proxy(
    listen: str = "127.0.0.1:0",
    *,
    island: str | None = None,
    devices: int | None = None,
    weight: float = 1.0,
    insecure: bool = False,
) -> Generator[Proxy]:
    """Serves the devices of one island to unmodified JAX programs until the block ends. Yields the running proxy.

    The devices are those on which programs of this process run: inside of `pw.cluster` and `pw.connect`, an island of
    that cluster. `listen` is HOST:PORT; port 0 chooses a free port. `island` is a name, by default the first island.
    `devices` is a number of devices, by default all of the island; without a cluster, this process creates them if its
    platform can. Each program that connects is a client of its own with this `weight`.

    Raises PWC0943 for an address that other machines reach, unless `insecure`, since JAX's client has no password.
    Raises PWC0104 for an unknown island or too many devices, PWC0942 without hpack, OSError if the port is in use.

        with pw.cluster("islands=1,hosts=2,devices=4"), pw.proxy("127.0.0.1:29000") as served:
            subprocess.run([sys.executable, "train.py"], env={**os.environ, **served.environment})
    """
    host, _, port = listen.rpartition(":")
    if not (host and port.isdigit() and int(port) <= MAX_PORT):
        raise _refused("the proxy has no address to listen on", listen, "HOST:PORT", "listen='127.0.0.1:29000'")
    if not insecure and not _is_loopback(host):
        raise PathwaysError(OpenProxy(address=listen, where=caller()))
    served = served_devices(process(), island, devices)
    server = ProxyServer(served, host, int(port), weight)
    try:
        yield Proxy(f"{host}:{server.port}", served.island.name, served.count)
    finally:
        server.stop()


def served_devices(own: Process, island: str | None, devices: int | None) -> ServedDevices:
    """Chooses the devices to serve. Raises PWC0104 for an unknown island, or more devices than it has."""
    topology = own.known_topology
    if topology is None:
        made = Island(island or ISLAND, devices=devices or 1, kind=kind_of_made(own.platform))
        return ServedDevices(own, Topology((made,)), made, made.size)
    found = next((one for one in topology.islands if island in (None, one.name)), None)
    if found is None:
        known = ", ".join(one.name for one in topology.islands)
        raise _refused("the proxy cannot serve this island", str(island), f"one of {known}", "island='island0'")
    if devices is not None and not 0 < devices <= found.size:
        rule = f"1 to {found.size} devices, which {found.name} has"
        raise _refused("the proxy cannot serve so many devices", str(devices), rule, f"devices={found.size}")
    return ServedDevices(own, topology, found, devices or found.size)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(problem: str, have: str, rule: str, advice: str) -> PathwaysError:
    error = BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller())
    return PathwaysError(error)
