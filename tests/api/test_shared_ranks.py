"""Tests a shared cluster whose islands have two hosts each: results equal those of one process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.forked_python import processes_from_nothing
from support.processes import ROOT, load_file, run_python
from support.shared import SharedCluster, end_of, shared_cluster

import pathways as pw
from pathways.api import shared_cluster as starting
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import parse_topology


@pytest.fixture(scope="module")
def cluster(thorough: bool) -> Iterator[SharedCluster]:
    """With --all the hosts have hash seeds of their own, as in test_cluster_ranks.py."""
    with processes_from_nothing(thorough), shared_cluster("islands=2,hosts=2,devices=1") as made:
        yield made


@pytest.mark.long("clients compete for many runs: 16 s")
def test_runs_of_two_clients_over_both_islands_have_one_order_on_all_hosts(cluster: SharedCluster) -> None:
    """A different order on one host would give wrong sums, or hang."""
    with cluster.clients(("sums", 0, 500), ("sums", 1, 500)) as clients:
        assert [end_of(each) for each in clients] == [["0", "0"], ["0", "0"]]
    assert cluster.is_empty()


@pytest.fixture(scope="module")
def wide() -> Iterator[SharedCluster]:
    with shared_cluster("islands=2,hosts=2,devices=2") as made:
        yield made


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("mixture_of_experts",))
@pytest.mark.parametrize("name", ["train_lm", "mixture_of_experts"])
def test_sample_losses_match_plain_jax(name: str, wide: SharedCluster) -> None:
    with pw.connect(wide.address):
        losses = load_file(ROOT / "samples" / f"{name}.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("figure2",))
@pytest.mark.parametrize("name", ["figure2", "speculative_decoding"])
def test_samples_print_the_same_as_in_one_process(name: str, wide: SharedCluster) -> None:
    """The samples do not mention clusters. The address in the environment is enough."""
    file = str(ROOT / "samples" / f"{name}.py")
    shared, alone = run_python(file, PATHWAYS_ADDRESS=wide.address), run_python(file)
    assert shared.returncode == 0 and shared.stdout == alone.stdout != "", shared.stderr
    assert wide.is_empty()


def test_hosts_that_fail_to_start_are_named_with_their_last_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "pod.1.log").write_text("no room\n")
    hosts = [{"name": "pod/0"}, {"name": "pod/1"}]
    said = {"islands": [{"name": "pod", "state": "away", "waits": "", "hosts": hosts}]}
    monkeypatch.setattr(starting, "start_controller", lambda *_: tmp_path)
    monkeypatch.setattr(starting, "ask", lambda address, what: said)
    with pytest.raises(PathwaysError, match="pod/0: no output; pod/1: no room") as caught:
        starting.start_shared(str(tmp_path), parse_topology("islands=1,hosts=2,devices=1"), "stride")
    assert caught.value.code == "PWC0918"
