"""Starts a Ray cluster for tests in a separate process, and Pathways clusters on it.

`python -m support.ray_trial NODES CPUS` prints the address and settings of Ray as JSON. For each line from stdin, it
adds a node with that count of CPUs. It exits at the end of its input.
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
    """A running Ray cluster. `process` has started all its processes."""

    process: "subprocess.Popen[str]"
    address: str
    environment: dict[str, str]

    def processes(self) -> set[int]:
        """Returns the process ids of Ray and of the Pathways clusters on it."""
        return begotten_by(self.process.pid)

    def cluster(
        self, topology: str | None, labels: Sequence[str] = (), port: MemberPort | None = None
    ) -> AbstractContextManager[SharedCluster]:
        """Starts a Pathways cluster on Ray; stops it and checks that all its processes exit."""
        asked = parse_topology(topology) if topology else None
        request = RayRequest(self.address, labels=labels, port=port)
        return started_by(lambda address: start_on_ray(address, request, asked, "stride"))

    def add_node(self, cpus: int) -> None:
        """Adds a node, and waits until the node is running."""
        assert self.process.stdin is not None
        print(cpus, file=self.process.stdin, flush=True)
        assert line_of(self.process) == "added"


@contextmanager
def trial_ray(nodes: int, cpus: int) -> Generator[TrialRay]:
    """Starts Ray with its settings in the environment; stops it and checks that all its processes exit."""
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
