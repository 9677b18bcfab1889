"""`pwc cluster`, `pwc status` and `pwc stack`"""

import json
import time
from pathlib import Path

import click

from pathways.api.shared_cluster import start_on_ray, start_shared
from pathways.dialect.platforms import PLATFORMS
from pathways.dialect.topology import parse_topology
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.launch.local_cluster import ADDRESS, DEFAULT, ask, chosen_address, cluster_folder
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.ray_cluster import RayRequest, await_end_of_ray, ray_of, ray_settings
from pathways.runtime.status import read_status

_EXAMPLE = """
\b
Examples:
  pwc cluster start islands=2,devices=4
  pwc cluster start --ray local islands=2,devices=4    # its hosts on nodes of a Ray, which is started, too
  PATHWAYS_ADDRESS=default python train.py    # any program of pathways runs there
  pwc status --watch
  pwc cluster stop
"""
_LOOK = 1.0
"""Seconds between two looks of --watch."""


def _address() -> click.Option:
    said = f"The cluster: a name, or a folder; default: {ADDRESS}, or {DEFAULT!r}."
    return click.Option(["--address", "--name", "address"], metavar="NAME", default=None, help=said)


@click.group("cluster", epilog=_EXAMPLE)
def cluster_() -> None:
    """Start, look at and stop a cluster that many processes share."""


@click.command("start", epilog=_EXAMPLE)
@click.argument("topology", required=False)
@click.option("--policy", type=click.Choice(sorted(SCHEDULING_POLICIES)), default=STRIDE, show_default=True)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Have Ray start the hosts: HOST:PORT of its head, or local[:NODES] for a Ray of its own (docs/ray.md).",
)
@click.option("--platform", type=click.Choice(sorted(PLATFORMS)), help="With --ray; default: what its nodes have.")
@click.option(
    "--label", "labels", multiple=True, metavar="[ISLAND:]KEY=VALUE", help="With --ray: a label that nodes must have."
)
def start_(
    topology: str | None,
    policy: str,
    ray: str | None,
    platform: str | None,
    labels: tuple[str, ...],
    address: str | None,
) -> None:
    """Start a controller and its hosts on this machine. They stay until `pwc cluster stop`.

    TOPOLOGY is a spec (islands=2,devices=4), a TOML file, or a preset. With --ray it may be left out: the nodes of Ray
    are the islands.
    """
    chosen = chosen_address(address)
    asked = parse_topology(topology) if topology else None
    if ray is not None:
        status = start_on_ray(chosen, RayRequest(ray, platform, labels), asked, policy)
        said = ray_of(cluster_folder(chosen))
        click.echo(status)
        click.echo(f"Ray      {' '.join((said['address'], ray_settings(said))).strip()}")
    elif asked is None:
        raise click.UsageError("Missing argument 'TOPOLOGY'.")
    elif platform or labels:
        raise click.UsageError("--platform and --label go with --ray.")
    else:
        click.echo(start_shared(chosen, asked, policy))
    click.echo(f"{ADDRESS}={chosen}   # in the environment of programs that run there; or pw.connect({chosen!r})")


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status_(watch: bool, as_json: bool, address: str | None) -> None:
    """Show islands and devices, who runs and waits there, and whose bytes lie there."""
    while True:
        said = ask(chosen_address(address), "status")
        if as_json:
            click.echo(json.dumps({"version": 1} | said))
        else:
            if watch:
                click.clear()
            clients = ", ".join(f"{c['name']} {c['number']} (process {c['pid']})" for c in said["clients"])
            click.echo(read_status(said))
            click.echo(f"clients  {clients or 'none'}")
        if not watch:
            return
        time.sleep(_LOOK)


@click.command("stop")
def stop_(address: str | None) -> None:
    """End the hosts and the controller: arrays that clients have there are gone."""
    chosen = chosen_address(address)
    ray = ray_of(cluster_folder(chosen))
    ask(chosen, "stop")
    until = time.monotonic() + 10
    while cluster_folder(chosen).exists() and time.monotonic() < until:
        time.sleep(0.02)
    await_end_of_ray(ray)


@click.command("stack")
def stack_(address: str | None) -> None:
    """Show where each host is, now: the calls of all of its threads."""
    said = ask(chosen_address(address), "stacks")
    for host, text in said["hosts"].items():
        click.echo("\n".join(f"{host} | {line}" for line in text.splitlines()))
    for line in said["controller"]:
        click.echo(f"controller | {line}")


@click.command("logs")
@click.option("--lines", type=click.IntRange(min=1), default=20, show_default=True, help="So many of each.")
def logs_(lines: int, address: str | None) -> None:
    """Show the last lines that the controller and its hosts have printed, with the name of each in front."""
    chosen = chosen_address(address)
    ask(chosen, "status")
    for path in sorted(Path(cluster_folder(chosen) / LOGS).glob("*.log")):
        for line in path.read_text(errors="replace").splitlines()[-lines:]:
            click.echo(f"{path.stem} | {line}")


for _command in (start_, status_, stop_, logs_, stack_):
    _command.params.append(_address())
for _command in (start_, status_, stop_, logs_):
    cluster_.add_command(_command)
