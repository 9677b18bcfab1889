"""Implements `pwc cluster keys` and `pwc cluster join`, for clusters of several machines. The first creates TLS keys
for the controller, hosts and clients. The second turns this machine into a host of a running cluster.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from pathways.runtime.launch.reach import KEYS, answer_of, chosen_keys
from pathways.runtime.launch.spawn import become
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import LOOPBACK, Address, read_address, show_address
from pathways.runtime.wire.certificates import make_folders, member_folder
from pathways.runtime.wire.credentials import TICKET
from pathways.runtime.wire.tls import checked_keys
from pathways.runtime.wire.tls_ports import join_as

_KEYS = """
\b
Examples:
  pwc cluster keys keys --hosts island0,island1 --clients alice,bob
  pwc cluster keys keys --clients carol                      # adds a client to the same cluster

\b
Copy each folder over a trusted channel (scp, a Kubernetes secret); a process with a folder is that member:
  keys/controller      the machine of the controller: pwc cluster start ... --bind HOST:PORT --keys keys
  keys/host.island0    the machine of island0: pwc cluster join HOST:PORT --island island0 --keys host.island0
  keys/client.alice    alice: PATHWAYS_ADDRESS=HOST:PORT PATHWAYS_KEYS=client.alice python train.py
  keys/authority       nowhere: it can admit any member, and is only needed to make more keys
"""
_JOIN = """
\b
Examples:
  pwc cluster join 10.0.0.1:7000 --island island0 --ip 10.0.0.2 --keys host.island0
  ssh machine2 pwc cluster join 10.0.0.1:7000 --island island1 --ip 10.0.0.3 --keys host.island1
"""


class HostPort(click.ParamType[Address]):
    """Option type for HOST:PORT."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        found = read_address(str(value)) if isinstance(value, str) else value
        if found is None:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return found


HOST_PORT = HostPort()


def _names(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    return [name for name in value.split(",") if name]


@click.command("keys", epilog=_KEYS)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--hosts", default="", callback=_names, help="Islands, by name; if an island has several hosts, each rank: pod/0."
)
@click.option("--clients", default="", callback=_names, help="Clients, by names of your choice.")
@click.option("--cluster", default=None, metavar="NAME", help="Name of the cluster; default: the name of the folder.")
def keys_(folder: Path, hosts: list[str], clients: list[str], cluster: str | None) -> None:
    """Make the keys of a cluster of several machines: a folder for each member, below FOLDER.

    If FOLDER has an authority already, members are added to it.
    """
    for made in make_folders(folder, cluster or folder.absolute().name, hosts, clients):
        click.echo(made)


@click.command("join", epilog=_JOIN)
@click.argument("controller", type=HOST_PORT)
@click.option("--island", required=True, help="The island of this host.")
@click.option(
    "--rank", type=click.IntRange(min=0), default=None, help="The rank of this host, if the island has several."
)
@click.option("--keys", type=click.Path(path_type=Path), help=f"The folder of this host's keys; default: {KEYS}.")
@click.option("--ip", default=LOOPBACK, show_default=True, help="The address at which other machines reach this one.")
def join_(controller: Address, island: str, rank: int | None, keys: Path | None, ip: str) -> None:
    """Run a host of a cluster that was started with --join, until the cluster or this process ends.

    It fails if the controller marks this host as lost, for example after a heartbeat timeout. It can then be started
    again.

    Hosts and clients connect to it at ports of --ip that the system chooses. Clients use TLS. JAX's transfer servers,
    which move values between hosts, use neither keys nor encryption: use an address in a trusted network.
    """
    name = island if rank is None else f"{island}/{rank}"
    folder = chosen_keys(keys)
    if folder is None:
        raise click.UsageError(f"no keys: give --keys, or set {KEYS}")
    folder = member_folder(folder, "host", name)
    mine = checked_keys(folder, "host", name)
    connection, _ = join_as(controller, mine, "controller")
    if rank is not None:
        click.echo(f"{name} waits for the other hosts of {island}")
        sys.stdout.flush()
    spec = answer_of(connection, show_address(controller), m.Ask(0, "host"))
    if ip == LOOPBACK and controller[0] not in (LOOPBACK, "localhost"):
        click.echo(f"note: --ip is {LOOPBACK}, at which other machines cannot reach this host", err=True)
    click.echo(f"{name} joins {show_address(controller)}: {spec['devices']} x {spec['platform']}")
    sys.stdout.flush()
    arguments = ["--connect", show_address(controller), "--keys", str(folder), "--ip", ip, "--island", island]
    arguments += ["--devices", str(spec["devices"]), "--platform", spec["platform"], "--foreground"]
    arguments += ["--rank", str(spec["rank"]), "--hosts", json.dumps(spec["hosts"])]
    if spec["group"]:
        arguments += ["--group", spec["group"]]
    os.environ[TICKET] = spec["ticket"]
    become("pathways.runtime.host.serve", arguments)
