"""Tests that a client that sends anything harms only itself: hosts stay, and other clients get the same numbers."""

import contextlib
import random
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.hostile import (
    ASKED,
    HostileClient,
    answers,
    connect,
    hostile_messages,
    plan_of_two_islands,
    send,
    small_plan,
)
from support.shared import SharedCluster, end_of, line_of, shared_cluster

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.launch.local_hosts import CONTROLLER
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import MAX_RESULTS, first_id
from pathways.runtime.wire.message import VERSIONS

ISLAND = "island0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster("islands=3,devices=2") as made:
        yield made


@contextmanager
def unharmed(cluster: SharedCluster) -> Generator[None]:
    """Runs another client during the block: its numbers are right, and all hosts are the same afterwards."""
    hosts = cluster.hosts()
    with cluster.client("elsewhere") as other:
        assert line_of(other) == "ready"
        yield
        assert end_of(other, "\n") == ["0"]
    with cluster.clients(("sums", 1, 12)) as after:  # on the islands that were attacked
        assert end_of(after[0]) == ["0", "0"]
    assert cluster.hosts() == hosts
    assert cluster.is_empty()


def newcomer(cluster: SharedCluster) -> tuple[HostileClient, Connection, int]:
    """Makes a hostile client, its connection to a host, and the number of a plan that it has loaded there."""
    client = HostileClient(cluster.address)
    host, plan = client.host(ISLAND), client.ids(1)
    client.load(host, plan)
    return client, host, plan


def refusal(client: HostileClient) -> str:
    """Waits until the controller ends a client; returns the code of the error that it tells the client before."""
    code = ""
    with contextlib.suppress(ConnectionEnded):
        while True:
            said = client.control.receive()
            if isinstance(said, m.RunRefused) and said.run == 0:
                code = read_diagnostic(said.cause).code
    client.close()
    return code


def test_every_message_with_hostile_fields_harms_nobody_else(cluster: SharedCluster, thorough: bool) -> None:
    """Each message goes to the controller and to a host, from a client that has come in and one that has not."""
    rng, sent = random.Random(0), 0
    with unharmed(cluster):
        client, host, plan = newcomer(cluster)
        for turn in range(4 if thorough else 1):
            for message in hostile_messages(client.ids(3), client.welcome.client, rng, other_fields=turn % 3):
                if not thorough and rng.random() < 0.5:
                    continue
                if rng.random() < 0.1:
                    with closing(connect(str(Path(cluster.address) / CONTROLLER))) as stranger:
                        sent += send(stranger, message)
                sent += send(client.control, client.wrapped(ISLAND, message, plan, sent)) + send(host, message)
                if not (answers(client.control, m.Ask(ASKED, "status")) and answers(host, m.Flush(ASKED))):
                    host.close()
                    client.close()
                    client, host, plan = newcomer(cluster)
        host.close()
        client.close()
    assert sent > (8_000 if thorough else 500)


def test_clients_whose_bytes_change_on_their_way_harm_nobody_else(cluster: SharedCluster, thorough: bool) -> None:
    seeds, count, refused = (range(3), 10, 0) if thorough else (range(1), 5, 0)
    with unharmed(cluster):
        for seed in seeds:  # each process has its own time limit
            with cluster.process("support.tampering", seed, count) as tampered:
                refused += int(end_of(tampered)[0])
    assert len(seeds) * count // 3 <= refused <= len(seeds) * count


def test_results_that_reach_into_the_next_client_are_refused(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        last = first_id(client.welcome.client + 1) - 2
        for results in (last, last - MAX_RESULTS + 2):
            again = HostileClient(cluster.address)
            ids = [again.ids(n) for n in range(3)]
            shift = first_id(again.welcome.client) - first_id(client.welcome.client)
            again.control.post(again.submitted(ISLAND, m.RunPlan(ids[0], ids[1], 0, results + shift, ())))
            assert refusal(again) == "PWC0916"
        client.close()


def test_a_run_with_a_wrong_number_of_arguments_fails_alone(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        host = client.host(ISLAND)
        plan = client.ids(1)
        client.load(host, plan)
        for number, arguments in enumerate([(), (-1, -1), (-1,) * 1000]):
            run = client.ids(100 + number)
            client.control.post(client.submitted(ISLAND, m.RunPlan(plan, run, 0, client.ids(200 + number), arguments)))
            said = next(x for x in iter(host.receive, None) if isinstance(x, m.Failed))
            assert said.run == run and "PWC0911" in said.causes["0"]
        host.close()
        client.close()


def test_wrong_arguments_and_shards_are_refused_in_plain_words(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        client, host, plan = newcomer(cluster)
        array, other = client.ids(50), client.ids(51)
        wanted = {
            m.PutArray(client.ids(52), plan, 0, b"x" * 7): "an argument of 7 bytes",
            m.PutArray(client.ids(53), plan, 9, bytes(32)): "argument 9",
            m.PutArray(client.ids(54), other, 0, bytes(32)): f"plan {other}",
        }
        for message, have in wanted.items():
            host.post(message)
            assert_refused(host, m.FetchArray(5, message.array, -1), have)
        host.post(m.PutArray(array, plan, 0, bytes(32)))
        assert_refused(host, m.FetchArray(5, array, 9), "shard 9 of an array on 1 devices")
        assert_refused(host, m.FetchArray(5, other, -1), f"array {other}")
        assert_refused(host, m.CountCosts(5, other), f"plan {other}")
        host.close()
        client.close()


def assert_refused(host: Connection, message: m.Message, have: str) -> None:
    host.post(message)
    answer = host.receive()
    assert isinstance(answer, m.Answer) and answer.error
    assert have in (said := read_diagnostic(answer.error).render()) and "PWC" in said, said


@pytest.mark.long("more causes: 1 s each", keep=("garbage",))
@pytest.mark.parametrize("cause", ["garbage", "[" * 100_000, '{"class": "x"}'])
def test_a_poison_without_a_readable_cause_ends_only_its_client(cluster: SharedCluster, cause: str) -> None:
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        client.control.post(client.after_runs(ISLAND, m.PutPoison(client.ids(1), cause)))
        assert refusal(client) == "PWC0911"


def test_a_run_of_a_plan_that_no_host_has_ends_at_once(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        ids = [client.ids(n) for n in range(3)]
        client.control.post(
            client.submitted(ISLAND, m.RunPlan(ids[0], ids[1], 0, ids[2], ()))
        )  # of a plan that no host has
        said = next(x for x in iter(client.control.receive, None) if isinstance(x, m.RunRefused))
        assert said.run == ids[1] and read_diagnostic(said.cause).code == "PWC0911"
        client.close()


def test_a_run_of_some_islands_of_its_plan_is_refused(cluster: SharedCluster) -> None:
    """The island that runs would wait 30 s for the values of the other, and so would all runs behind."""
    islands = ("island0", "island1")
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        hosts, plan = [client.host(island) for island in islands], client.ids(1)
        for island, host in zip(islands, hosts, strict=True):
            client.load(host, plan, island, plan_of_two_islands())
        for number, chosen in enumerate(["island1", "island0", "island0 island1"]):
            run = m.RunPlan(plan, client.ids(100 + number), 7, client.ids(200 + 10 * number), ())
            client.control.post(client.submitted(chosen, run))
            if " " in chosen:
                for host in hosts:
                    assert next(x for x in iter(host.receive, None) if isinstance(x, m.Done)).run == run.run
            else:
                said = next(x for x in iter(client.control.receive, None) if isinstance(x, m.RunRefused))
                assert said.run == run.run and read_diagnostic(said.cause).code == "PWC0911"
        for one in (client, *hosts):
            one.close()


def test_a_run_of_several_hosts_is_refused_unless_all_have_loaded_its_plan(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        client, host, plan = newcomer(cluster)
        run = m.RunPlan(plan, client.ids(7), 0, client.ids(8), (-1,))
        client.control.post(client.submitted("island0 island1", run))
        said = next(x for x in iter(client.control.receive, None) if isinstance(x, m.RunRefused))
        assert said.run == run.run and read_diagnostic(said.cause).code == "PWC0911"
        for sequential, code in ((True, "PWC0911"), (False, "")):  # the proof of before would do for another plan
            host.post(m.LoadPlan(9, plan, "plan.bin", sequential, {}, small_plan()))
            answer = host.receive()
            assert isinstance(answer, m.Answer) and answer.request == 9
            assert (read_diagnostic(answer.error).code if answer.error else "") == code
        client.control.post(client.after_runs("island0", m.UnloadPlan(plan)))
        client.control.post(m.Introduce(0, plan, "again, with the proofs of before", None, ""))
        assert refusal(client) == "PWC0911"
        host.close()


def test_a_run_whose_client_hides_its_loop_from_the_controller_is_refused(cluster: SharedCluster) -> None:
    """Its hosts would wait for ever for decisions that the controller does not pass on."""
    with unharmed(cluster):
        client = HostileClient(cluster.address)
        islands = ("island0", "island1")
        hosts, plan = [client.host(island) for island in islands], client.ids(1)
        for island, host in zip(islands, hosts, strict=True):
            client.load(host, plan, island, plan_of_two_islands(turns=3))
        run = m.RunPlan(plan, client.ids(7), 0, client.ids(8), ())
        client.control.post(client.submitted("island0 island1", run))
        said = next(x for x in iter(client.control.receive, None) if isinstance(x, m.RunRefused))
        assert read_diagnostic(said.cause).code == "PWC0911"
        for one in (client, *hosts):
            one.close()


def test_absurd_claims_of_memory_are_refused(cluster: SharedCluster) -> None:
    with unharmed(cluster):
        for size in (1 << 60, -(1 << 60)):
            client = HostileClient(cluster.address)
            client.control.post(m.Hold(0, (0, size)))
            assert refusal(client) == "PWC0911"


def test_a_name_that_a_terminal_would_obey_is_refused(cluster: SharedCluster) -> None:
    connection = connect(str(Path(cluster.address) / CONTROLLER))
    connection.post(m.ClientHello("evil\x1b[2J", 1, VERSIONS))
    said = connection.receive()
    assert isinstance(said, m.RunRefused) and read_diagnostic(said.cause).code == "PWC0911"
    connection.close()
