"""Implements `pwc proxy`: serves the devices of a cluster to unmodified JAX programs until it is interrupted."""

import contextlib
import signal
import threading
from typing import Any

import click

from pathways.dialect.jax_api import local_devices


@click.command("proxy")
@click.argument("topology", required=False)
@click.option("--address", metavar="NAME", help="Serve devices of this shared cluster; default: hosts of its own.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:29000", show_default=True, help="Where to listen.")
@click.option("--island", metavar="NAME", help="The island to serve; default: the first.")
@click.option("--devices", type=click.IntRange(min=1), help="Serve the first N devices; default: all of the island.")
@click.option("--weight", type=float, default=1.0, show_default=True, help="The share of each client of the proxy.")
@click.option("--keys", metavar="DIR", help="Keys of a client, for a cluster on another machine.")
@click.option("--insecure", is_flag=True, help="Listen on an address that other machines reach, without any check.")
def proxy_(
    topology: str | None,
    address: str | None,
    listen: str,
    island: str | None,
    devices: int | None,
    weight: float,
    keys: str | None,
    insecure: bool,
) -> None:
    """Serve devices to unmodified JAX programs, by the IFRT proxy protocol.

    TOPOLOGY starts host processes of its own, as islands=1,hosts=2,devices=4. With --address, the proxy is a client of
    a shared cluster, and each JAX program that connects is one client there. The command prints the environment
    variables that such a program needs. It ends with Ctrl-C.
    """
    import pathways as pw

    if topology is not None and address is not None:
        raise click.UsageError("TOPOLOGY and --address exclude each other")
    with contextlib.ExitStack() as stack:
        if address is not None:
            stack.enter_context(pw.connect(address, name="proxy", keys=keys))
        else:
            stack.enter_context(pw.cluster(topology or f"islands=1,devices={devices or len(local_devices())}"))
        served = stack.enter_context(pw.proxy(listen, island=island, devices=devices, weight=weight, insecure=insecure))
        count = f"{served.devices} device{'' if served.devices == 1 else 's'}"
        click.echo(f"serving {count} of {served.island}; run a JAX program with these variables:")
        click.echo("export " + " ".join(f"{name}={value}" for name, value in served.environment.items()))
        _wait_for_interrupt()


def _wait_for_interrupt() -> None:
    """Waits for Ctrl-C or SIGTERM. The caller then stops the server and its hosts."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
