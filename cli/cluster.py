"""Implements `pwc cluster start`, `stop`, `add`, `remove` and `logs`, `pwc status` and `pwc stack`. With these commands
users start a cluster that several processes share, inspect it, and stop it.
"""

import time
from pathlib import Path

import click

from pathways.api.shared_cluster import start_on_ray, start_shared
from pathways.cli.cluster_members import HOST_PORT, join_, keys_
from pathways.cli.frozen_hosts import stacks_of_frozen
from pathways.cli.json_output import json_option, print_json
from pathways.cli.top import INTERVAL, show_live, shows_live, top_
from pathways.dialect.platforms import PLATFORMS
from pathways.dialect.topology import parse_topology, write_topology
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.control.scheduling.find_policy import find_scheduling_policy
from pathways.runtime.launch.local_cluster import DEFAULT, MemberPort, cluster_folder
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.ray_cluster import RayRequest, await_end_of_ray, ray_of, ray_settings
from pathways.runtime.launch.reach import ADDRESS, KEYS, ask, chosen_address, chosen_keys, request
from pathways.runtime.status import read_status
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import Address, read_address
from pathways.runtime.wire.client_messages import NO_ANSWER

_EXAMPLE = """
\b
Examples:
  pwc cluster start islands=2,devices=4
  pwc cluster start --ray local islands=2,devices=4    # starts Ray, and hosts on its nodes
  PATHWAYS_ADDRESS=default python train.py    # programs then run on the cluster
  pwc top                                     # a live view; pwc status prints it once
  pwc cluster add devices=4                   # adds an island; pwc cluster remove island2 removes it
  pwc cluster stop
  pwc cluster start pods.toml --bind 10.0.0.1:7000 --keys keys --join   # hosts on other machines
"""


def _address() -> click.Option:
    described = f"The cluster: a name, a folder, or HOST:PORT on another machine; default: {ADDRESS}, or {DEFAULT!r}."
    return click.Option(["--address", "--name", "address"], metavar="NAME", default=None, help=described)


def _keys() -> click.Option:
    described = f"The folder of a client's keys, if the cluster is on another machine; default: {KEYS}."
    return click.Option(["--keys"], type=click.Path(path_type=Path), default=None, help=described)


@click.group("cluster", epilog=_EXAMPLE)
def cluster_() -> None:
    """Start, inspect and stop a cluster that several processes share."""


def _absolute(policy: str) -> str:
    """Makes the file of a policy absolute, because the controller has another working directory."""
    path, colon, name = policy.rpartition(":")
    return f"{Path(path).resolve()}:{name}" if colon and path.endswith(".py") else policy


@click.command("start", epilog=_EXAMPLE)
@click.argument("topology", required=False)
@click.option(
    "--policy", metavar="NAME|FILE.py:CLASS", default=STRIDE, show_default=True,
    help=f"Which run is next on an island: {', '.join(SCHEDULING_POLICIES)}, or a policy of your own.",
)  # fmt: skip
@click.option("--bind", type=HOST_PORT, help="Also listen at this address, with TLS, for members on other machines.")
@click.option(
    "--keys", type=click.Path(path_type=Path), help="With --bind: the folder that `pwc cluster keys` created."
)
@click.option("--join", is_flag=True, help="With --bind: start no hosts, but wait until each joins (pwc cluster join).")
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Let Ray start the hosts: HOST:PORT of its head node, or local[:NODES] to start Ray here (docs/ray.md).",
)
@click.option(
    "--platform", type=click.Choice(sorted(PLATFORMS)), help="With --ray; default: the platform of its nodes."
)
@click.option(
    "--label", "labels", multiple=True, metavar="[ISLAND:]KEY=VALUE", help="With --ray: a label that nodes must have."
)
def start_(
    topology: str | None,
    policy: str,
    bind: Address | None,
    keys: Path | None,
    join: bool,
    ray: str | None,
    platform: str | None,
    labels: tuple[str, ...],
    address: str | None,
) -> None:
    """Start a controller on this machine, and its hosts. They run until `pwc cluster stop`.

    TOPOLOGY is a spec (islands=2,devices=4), a TOML file, or a preset. With --ray it may be omitted: the nodes of Ray
    are then the islands.
    """
    if (bind is None) != (keys is None) or (join and bind is None):
        raise click.UsageError("--bind and --keys need each other, and --join needs both")
    chosen = chosen_address(address)
    parsed = parse_topology(topology) if topology else None
    find_scheduling_policy(policy)  # checked here, so that the error is not only in the controller's log
    policy = _absolute(policy)
    port = MemberPort(bind, keys, join) if bind is not None and keys is not None else None
    if ray is not None:
        if join:
            raise click.UsageError("--join cannot be used with --ray: Ray starts the hosts.")
        status = start_on_ray(chosen, RayRequest(ray, platform, labels, port), parsed, policy)
        answer = ray_of(cluster_folder(chosen))
        click.echo(status)
        click.echo(f"Ray      {' '.join((answer['address'], ray_settings(answer))).strip()}")
    elif parsed is None:
        raise click.UsageError("Missing argument 'TOPOLOGY'.")
    elif platform or labels:
        raise click.UsageError("--platform and --label need --ray.")
    else:
        click.echo(start_shared(chosen, parsed, policy, port))
    click.echo(f"{ADDRESS}={chosen}   # in the environment of programs that run there; or pw.connect({chosen!r})")
    if port is not None:
        where = ask(chosen, "status")["bind"]
        click.echo(f"{ADDRESS}={where} {KEYS}=FOLDER   # on other machines; FOLDER: the keys of a client")
        for island in parsed.islands if join and parsed is not None else ():
            for rank in range(island.hosts):
                which = f"{island.name} --rank {rank}" if island.hosts > 1 else island.name
                click.echo(
                    f"pwc cluster join {where} --island {which} --keys FOLDER   # on the machine with its devices"
                )


@click.command("status")
@click.option("--watch", is_flag=True, help="Repeat every second, until Ctrl-C.")
@json_option
def status_(watch: bool, as_json: bool, address: str | None, keys: Path | None) -> None:
    """Show islands and devices, the programs that run and wait there, and the bytes of each client.

    With --watch, in a terminal, this is pwc top.
    """
    chosen, known = chosen_address(address), chosen_keys(keys)
    if watch and not as_json and shows_live():
        show_live(lambda: ask(chosen, "status", known), chosen)
        return
    while True:
        answer = ask(chosen, "status", known)
        if as_json:
            print_json(answer)
        else:
            clients = ", ".join(f"{c['name']} {c['number']} (process {c['pid']})" for c in answer["clients"])
            click.echo(read_status(answer))
            click.echo(f"clients  {clients or 'none'}")
            if absent := [i["name"] for i in answer["islands"] if i["state"] == "starting"]:
                click.echo(f"starting {', '.join(absent)}")
        if not watch:
            return
        time.sleep(INTERVAL)


@click.command("stop")
def stop_(address: str | None, keys: Path | None) -> None:
    """Stop the hosts and the controller. The arrays that clients have there are lost."""
    chosen = chosen_address(address)
    ray = None if read_address(chosen) else ray_of(cluster_folder(chosen))
    ask(chosen, "stop", chosen_keys(keys))
    until = time.monotonic() + 10
    while read_address(chosen) is None and cluster_folder(chosen).exists() and time.monotonic() < until:
        time.sleep(0.02)
    if ray is not None:
        await_end_of_ray(ray)


@click.command("add")
@click.argument("spec")
def add_(spec: str, address: str | None, keys: Path | None) -> None:
    """Add an island, and print its name when it is ready. All clients can use it.

    SPEC describes one island: devices=4, or devices=4,memory=1GiB,name=pod7.
    """
    topology = parse_topology(spec)
    if len(topology.islands) != 1:
        raise click.BadParameter(f"{len(topology.islands)} islands; add one island at a time")
    named = "name=" in spec
    change = m.ChangeIslands(0, write_topology(topology), "", named=named, now=False)
    click.echo(request(chosen_address(address), change, chosen_keys(keys)))


@click.command("remove")
@click.argument("island")
@click.option("--now", is_flag=True, help="Fail the runs on the island, and do not wait for them.")
def remove_(island: str, now: bool, address: str | None, keys: Path | None) -> None:
    """Remove an island after the runs on it complete. The arrays there are lost for all clients (PWC0922)."""
    change = m.ChangeIslands(0, "", island, named=True, now=now)
    request(chosen_address(address), change, chosen_keys(keys))


@click.command("stack")
def stack_(address: str | None, keys: Path | None) -> None:
    """Show the current calls of all threads of each host.

    For a frozen host on this machine, py-spy reads the stacks if it is installed.
    """
    chosen, known = chosen_address(address), chosen_keys(keys)
    answer = ask(chosen, "stacks", known)
    hosts = dict(answer["hosts"])
    if known is None and NO_ANSWER in hosts.values():
        hosts |= stacks_of_frozen(hosts, ask(chosen, "status", known))
    for host, text in hosts.items():
        click.echo("\n".join(f"{host} | {line}" for line in text.splitlines()))
    for line in answer["controller"]:
        click.echo(f"controller | {line}")


@click.command("logs")
@click.option("--lines", type=click.IntRange(min=1), default=20, show_default=True, help="Lines of each process.")
def logs_(lines: int, address: str | None, keys: Path | None) -> None:
    """Show the last lines that the controller and its hosts have printed, each with the name of its process."""
    chosen = chosen_address(address)
    answer = ask(chosen, "status", chosen_keys(keys))
    if read_address(chosen):
        click.echo(f"the logs of {chosen} are on its machine: run `pwc cluster logs --name NAME` there, with its name")
        return
    for path in sorted(Path(cluster_folder(chosen) / LOGS).glob("*.log")):
        for line in path.read_text(errors="replace").splitlines()[-lines:]:
            click.echo(f"{path.stem} | {line}")
    for host in (host for island in answer["islands"] for host in island["hosts"] if not host["pid"]):
        click.echo(f"{host['name']} | its output is where `pwc cluster join` runs")


start_.params.append(_address())
for _command in (status_, top_, stop_, logs_, add_, remove_, stack_):
    _command.params += [_address(), _keys()]
for _command in (start_, status_, top_, stop_, logs_, add_, remove_, keys_, join_):
    cluster_.add_command(_command)
