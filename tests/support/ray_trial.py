"""A Ray cluster for tests, in a process of its own, and clusters of ours there.

`python -m support.ray_trial NODES CPUS` says where it is, adds a node for each line that it reads, of so many CPUs, and
ends when its input does.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pathways.api.shared_cluster import start_on_ray
from pathways.dialect.topology import parse_topology
from pathways.runtime.launch.local_cluster import MemberPort
from pathways.runtime.launch.ray_cluster import RayRequest
from pathways.runtime.launch.ray_trial import trial_cluster
from support.clusters import PATIENCE
from support.proc import begotten_by
from support.processes import start_python
from support.shared import SharedCluster, end_all, line_of, started_by


@dataclass
class TrialRay:
    """A Ray that runs. `process`: the one that has started all of it."""

    process: "subprocess.Popen[str]"
    address: str
    environment: dict[str, str]

    def processes(self) -> set[int]:
        """Its processes, and those of the clusters there."""
        return begotten_by(self.process.pid)

    def cluster(
        self, topology: str | None, labels: Sequence[str] = (), port: MemberPort | None = None
    ) -> AbstractContextManager[SharedCluster]:
        """Starts a cluster of ours there, and stops it; nothing of it is left then."""
        asked = parse_topology(topology) if topology else None
        request = RayRequest(self.address, labels=labels, port=port)
        return started_by(lambda address: start_on_ray(address, request, asked, "stride"))

    def add_node(self, cpus: int) -> None:
        """Adds a node, and waits until it is there."""
        assert self.process.stdin is not None
        print(cpus, file=self.process.stdin, flush=True)
        assert line_of(self.process) == "added"


@contextmanager
def trial_ray(nodes: int, cpus: int) -> Generator[TrialRay]:
    """Starts a Ray, whose settings are in the environment meanwhile, and ends it; nothing of it is left then."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join((str(Path(tests).parent), tests))
    before = dict(os.environ)
    with start_python("-W", "ignore", "-m", "support.ray_trial", str(nodes), str(cpus), PYTHONPATH=path) as process:
        try:
            said = json.loads(line_of(process) or "{}")
            assert said, process.communicate()[1]
            os.environ |= said["environment"]
            ray = TrialRay(process, said["address"], said["environment"])
            yield ray
            pids = ray.processes()
        finally:
            os.environ.clear()
            os.environ |= before
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE)
    end_all(pids)


def main() -> None:
    with trial_cluster(int(sys.argv[1]), int(sys.argv[2])) as trial:
        settings = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        print(json.dumps({"address": trial.address, "environment": settings}), flush=True)
        for line in sys.stdin:
            trial.add_node(int(line))
            print("added", flush=True)


if __name__ == "__main__":
    main()
