"""Implements `pwc calibrate`, which measures the devices, links and overheads of a machine or cluster, and writes them
as a topology for `pwc simulate` and `pwc search`.
"""

import contextlib
from pathlib import Path

import click

from pathways.api.calibration import calibrate
from pathways.api.cluster import cluster
from pathways.dialect.files import write_whole
from pathways.dialect.topology import parse_topology, write_topology

_EXAMPLE = """
\b
Examples:
  pwc calibrate --topology islands=2,devices=2 -o machine.toml
  pwc calibrate --topology islands=2,devices=2 --cluster -o cluster.toml     (each island is a process)
  pwc simulate plan.bin --topology machine.toml
"""


@click.command("calibrate", epilog=_EXAMPLE)
@click.option("--topology", default="islands=2,devices=2", show_default=True,
              help="The islands to measure: a spec or a TOML file.")  # fmt: skip
@click.option("--cluster", "as_cluster", is_flag=True, help="Start each island as a process, and measure across them.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File for the topology.")
def calibrate_(topology: str, as_cluster: bool, output: Path | None) -> None:
    """Measure this machine, or a cluster on it, for predictions of times. Takes about 10 seconds.

    Nothing else should run meanwhile. Each figure is the median of several runs.
    """
    machines = parse_topology(topology)
    with cluster(machines) if as_cluster else contextlib.nullcontext():
        found = write_topology(calibrate(machines))
    if output is None:
        click.echo(found, nl=False)
        return
    write_whole(output, found)
    click.echo(f"wrote    {output}   next: pwc simulate plan.bin --topology {output}")
