"""Defines the command line and the log file of a host process. All launchers, which start hosts locally or through Ray,
use it.
"""

import json
from pathlib import Path

from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island

HOST = "pathways.runtime.host.serve"
"""The main module of a host process."""


def log_of(folder: Path, host: str) -> Path:
    """Returns the log file of a host in a folder of logs."""
    return folder / f"{host.replace('/', '.')}.log"


def host_arguments(platform: str, ranks: RankTable, island: Island, rank: int, group: str) -> list[str]:
    """Returns the arguments of a host, except those for its controller and for the addresses where it listens.

    `group` is the address of its island's process group service; empty for a single host.
    """
    arguments = [
        "--island", island.name, "--devices", str(island.devices), "--platform", platform,
        "--rank", str(rank), "--hosts", json.dumps(dict(ranks.hosts)),
    ]  # fmt: skip
    return [*arguments, "--group", group] if group else arguments
