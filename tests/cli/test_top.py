"""Tests `pwc top`: its figures, its screen, and the command on a real cluster in a terminal."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from support.processes import pwc_here
from support.shared import SharedCluster, line_of, shared_cluster
from support.terminals import Terminal, terminal

from pathways.cli.top import polled_figures
from pathways.cli.top_figures import TopFigures, top_figures
from pathways.cli.top_screen import screen_of

PWC = ("-c", "from pathways.cli.main import main; main()")
TRAIN, TEST = "main of train 1", "main of test 2"


def island(name: str, ended: int = 0, **other: Any) -> dict[str, Any]:
    """The status of an island."""
    row = {"name": name, "kind": "cpu", "devices": 2, "state": "up", "waits": "", "held": {}, "reserved": 0}
    return row | {"memory": None, "ended": ended, "running": [], "waiting": []} | other


def client(name: str, number: int, pid: int, **had: tuple[float, int, float]) -> dict[str, Any]:
    """The status of a client; `had` gives weight, runs and seconds of each of its programs."""
    inside = {
        f"{k} of {name} {number}": {"weight": weight, "runs": runs, "seconds": seconds}
        for k, (weight, runs, seconds) in had.items()
    }
    return {"name": name, "number": number, "pid": pid, "runs": 0, "had": inside}


def status_of(clock: float, islands: list[dict[str, Any]], clients: list[dict[str, Any]]) -> dict[str, Any]:
    """The status of a cluster when its clock shows `clock` seconds."""
    return {"policy": "stride", "clock": clock, "islands": islands, "clients": clients}


PREVIOUS = status_of(
    10.0,
    [island("island0", 100), island("island1", 7, memory=1 << 30)],
    [client("train", 1, 41, main=(3.0, 100, 5.0)), client("idle", 3, 43)],
)
NOW = status_of(
    12.0,
    [
        island("island0", 150, running=[[TRAIN, "step"]] * 2, waiting=[[TRAIN, "step"], [TEST, "eval"]]),
        island(
            "island1", 7, memory=1 << 30, held={TRAIN: 1 << 28, TEST: 1 << 20}, reserved=1 << 28,
            running=[[TRAIN, "step"]],
        ),
    ],
    [
        client("train", 1, 41, main=(3.0, 140, 6.5)),
        client("test", 2, 42, main=(1.0, 10, 0.5)),
        client("idle", 3, 43),
    ],
)  # fmt: skip


def shown(figures: TopFigures, width: int = 160) -> list[str]:
    """Returns the lines of the screen."""
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(screen_of(figures, "default", keys=True))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_rates_count_runs_since_the_last_poll() -> None:
    figures = top_figures(NOW, PREVIOUS)
    assert [i.rate for i in figures.islands] == [25.0, 0.0]
    train, test, idle = figures.clients
    assert (train.rate, test.rate, idle.rate) == (20.0, 5.0, None) and figures.rate == 25.0


def test_shares_show_the_time_due_and_the_time_received() -> None:
    train, test, idle = top_figures(NOW, PREVIOUS).clients
    assert (train.due, test.due, idle.due) == (0.75, 0.25, None)
    assert (train.time, test.time, idle.time) == (0.75, 0.25, None)
    assert (train.weight, test.weight, idle.weight) == (3.0, 1.0, None)
    assert (train.running, train.waiting, test.waiting) == (2, 1, 1)
    assert (train.held, test.held, idle.held) == (1 << 28, 1 << 20, 0)


def test_the_first_poll_shows_no_rates() -> None:
    figures = top_figures(NOW)
    assert figures.rate is None and not any(i.rate for i in figures.islands)
    assert all(c.rate is None and c.time is None for c in figures.clients)
    assert shown(figures)[0].endswith("policy stride   - runs/s")


def test_a_new_or_restarted_island_has_no_negative_rate() -> None:
    after = status_of(13.0, [island("island0", 0), island("island9", 4)], [])
    assert [i.rate for i in top_figures(after, NOW).islands] == [0.0, None]


def test_the_screen_has_tables_of_islands_clients_and_queues() -> None:
    lines = shown(top_figures(NOW, PREVIOUS))
    assert lines[0] == "default   2 islands, 4 devices   policy stride   25.0 runs/s"
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "island0 2 x cpu up 0 B + 0 B 25.0 2 2" in text
    assert "257.0 MiB + 256.0 MiB of 1.0 GiB 0.0 1 0" in text
    assert f"{TRAIN} 41 3 75% 75% 20.0 2 1 256.0 MiB" in text
    assert "idle 3 43 - - - - 0 0 0 B" in text
    assert f"island0 running step of {TRAIN} x 2" in text
    assert f"waiting step of {TRAIN}, eval of {TEST}" in text and lines[-1] == "q quits"


def test_the_screen_shows_no_clients_and_the_resource_an_island_waits_for() -> None:
    starting = island("island0", state="starting", waits="a node with 4 GPUs")
    text = "\n".join(shown(top_figures(status_of(1.0, [starting], []))))
    assert "starting, waits for a node with 4 GPUs" in text and "no clients" in text and "queue" not in text


def test_a_list_of_many_programs_is_cut() -> None:
    many = island("island0", running=[[f"main of c {n}", "step"] for n in range(9)])
    text = "\n".join(shown(top_figures(status_of(1.0, [many], []))))
    assert "step of main of c 2, ..." in text and "main of c 3" not in text


def test_every_poll_is_compared_with_the_previous_one() -> None:
    answers = iter([PREVIOUS, NOW, NOW | {"clock": 13.0}])
    pauses: list[None] = []
    frames = polled_figures(lambda: next(answers), lambda: pauses.append(None))
    assert [next(frames).rate, next(frames).rate] == [25.0, 0.0] and len(pauses) == 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster("islands=2,devices=2,memory=1GiB") as made:
        yield made


def top(cluster: SharedCluster, *options: str, command: str = "top", **environment: str) -> Any:
    """Runs `pwc top`, or another command, in a terminal."""
    arguments = (command, *options, "--address", cluster.address)
    return terminal(*PWC, *arguments, environment=environment)


def wait_for_frame(screen: Terminal) -> None:
    """Waits for a frame that shows the cluster and the run of its client."""
    screen.wait_for("2 islands, 4 devices   policy stride")
    screen.wait_for("endless of main of client_programs")


@pytest.mark.long("a cluster is watched for several seconds")
def test_top_shows_a_cluster_until_q_is_pressed(cluster: SharedCluster) -> None:
    with cluster.client("hold") as client:
        assert line_of(client) == "ready"
        with top(cluster, "--interval", "0.05") as screen:
            wait_for_frame(screen)
            assert screen.shows(str(client.pid)) and screen.shows("of 1.0 GiB")
            screen.wait_for("100%")
            screen.type("x")
            screen.type("q")
            assert screen.end() == [] and screen.process.returncode == 0
            assert screen.raw.endswith(b"\x1b[?25h\x1b[?1049l"), "the cursor and the screen are back"


@pytest.mark.long("a cluster is watched for several seconds")
def test_ctrl_c_ends_status_with_watch(cluster: SharedCluster) -> None:
    with cluster.client("hold") as client:
        assert line_of(client) == "ready"
        with top(cluster, "--watch", command="status") as screen:
            wait_for_frame(screen)
            screen.interrupt()
            assert screen.end() == [] and screen.process.returncode == 0


def test_top_once_prints_one_frame_to_a_pipe(cluster: SharedCluster) -> None:
    with cluster.client("hold") as client:
        assert line_of(client) == "ready"
        code, out, err = pwc_here("top", "--once", "--interval", "0.01", "--address", cluster.address)
        assert code == 0 and not err and "\x1b" not in out
        assert "policy stride" in out and "endless of main of client_programs" in out and str(client.pid) in out
        code, out, _ = pwc_here("top", "--once", "--json", "--interval", "0.01", "--address", cluster.address)
        row = json.loads(out)
        assert code == 0 and row["version"] == 2 and [i["memory"] for i in row["islands"]] == [1 << 30] * 2
        assert [c["process"] for c in row["clients"]] == [client.pid] and row["clients"][0]["due"] == 1.0
    assert cluster.is_empty()


def test_completed_runs_are_counted(cluster: SharedCluster) -> None:
    before = {i["name"]: i["ended"] for i in cluster.status()["islands"]}
    with cluster.client("share", 2, 5) as client:
        assert line_of(client) == "ready"
        assert cluster.becomes(lambda status: status["clients"][0]["had"] != {})
        (had,) = cluster.status()["clients"][0]["had"].values()
        assert had["weight"] == 2 and had["runs"] >= 1 and had["seconds"] > 0
        after = {i["name"]: i["ended"] for i in cluster.status()["islands"]}
        assert sum(after.values()) - sum(before.values()) == had["runs"]


def test_top_without_a_usable_terminal_suggests_once(cluster: SharedCluster) -> None:
    code, _, err = pwc_here("top", "--address", cluster.address)
    assert code == 2 and "error[PWC0713]" in err and "--once" in err
    with top(cluster, TERM="dumb") as screen:
        screen.end()
        assert screen.process.returncode == 2 and screen.shows("PWC0713") and screen.shows("TERM=dumb")


def test_a_cluster_that_stops_meanwhile_is_reported_as_an_error() -> None:
    with shared_cluster("islands=1,devices=1") as cluster, top(cluster, "--interval", "0.05") as screen:
        screen.wait_for("1 island, 1 device")
        assert pwc_here("cluster", "stop", "--address", cluster.address)[0] == 0
        left = screen.end()
        assert left[0].startswith("error[PWC0918]") and screen.process.returncode == 1
