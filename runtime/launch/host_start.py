"""What the process of a host is started with, and where it prints to: the same for all ways to start one."""

import json
from pathlib import Path

from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island

HOST = "pathways.runtime.host.serve"
"""The module of a host's process."""


def log_of(folder: Path, host: str) -> Path:
    """Where a host prints to, by its name, in a folder of logs."""
    return folder / f"{host.replace('/', '.')}.log"


def host_arguments(platform: str, ranks: RankTable, island: Island, rank: int, group: str) -> list[str]:
    """What a host of any machine is started with, beside where its controller is, and where it listens itself.

    `group` is where the hosts of its island meet; empty where it is alone.
    """
    arguments = [
        "--island", island.name, "--devices", str(island.devices), "--platform", platform,
        "--rank", str(rank), "--hosts", json.dumps(dict(ranks.hosts)),
    ]  # fmt: skip
    return [*arguments, "--group", group] if group else arguments
