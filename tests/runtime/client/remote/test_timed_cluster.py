"""The figures that a client writes for timed hosts have the rates of the topology, in bytes and seconds."""

from pathlib import Path

import pytest

from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.remote import timed_cluster
from pathways.runtime.client.remote.timed_cluster import TimedCluster
from pathways.runtime.host.timed.figures import Figures


@pytest.mark.parametrize(("latency", "seconds"), [(None, 0.0), (3.0, 3e-6)])
def test_timed_hosts_have_the_rates_and_latencies_of_the_topology(
    latency: float | None, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_cluster, "allow_many_files", lambda: None)
    islands = tuple(Island(name, devices=1, ici_gbps=rate, ici_us=latency) for name, rate in (("a", 50.5), ("b", 0.5)))
    cluster = TimedCluster.__new__(TimedCluster)  # starts no process
    cluster._calls = {}  # pyright: ignore[reportPrivateUsage]
    cluster.make_launcher(tmp_path, Topology(islands, dcn_gbps=0.25, dcn_us=latency), "cpu")
    found = [Figures(tmp_path, island.name) for island in islands]
    for figures in found:
        figures.read()
        assert (figures.names, figures.network_rate) == (["a", "b"], 250_000_000)
        assert figures.ici_seconds == figures.network_seconds == pytest.approx(seconds)
    assert [figures.ici_rate for figures in found] == [50_500_000_000, 500_000_000]
