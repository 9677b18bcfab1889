"""Decisions for Ray that need no running Ray: islands of nodes, protection of addresses, ends of processes."""

import importlib.util
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters import PATIENCE, is_alive
from support.codes import code_of
from support.processes import ROOT, pwc_here, start_python

from pathways.dialect.platforms import platform_named
from pathways.dialect.ranks import ONE_EACH, RankTable
from pathways.dialect.topology import Island, parse_topology
from pathways.runtime.launch import ray_hosts, ray_start
from pathways.runtime.launch.launcher import HostLauncher
from pathways.runtime.launch.ray_api import keeper_on_head
from pathways.runtime.launch.ray_cluster import RayRequest
from pathways.runtime.launch.ray_hosts import RayLauncher
from pathways.runtime.launch.ray_nodes import (
    SLICE,
    HostGang,
    RayNode,
    check_gangs,
    check_here,
    check_protected,
    gang_of,
    is_loopback,
    platform_of,
    read_labels,
    topology_of_nodes,
)
from pathways.runtime.launch.tied import tie

CPU, GPU, TPU = (platform_named(name) for name in ("cpu", "gpu", "tpu"))
A7 = {"rack": "a7"}


def node(labels: dict[str, str] | None = None, **resources: float) -> RayNode:
    path = str(Path(__file__))
    return RayNode(resources, labels or {}, "127.0.0.1", socket.gethostname(), path)


def test_each_node_or_slice_becomes_an_island() -> None:
    nodes = [node(CPU=8, GPU=4), node(CPU=8, GPU=2), node(CPU=2)]
    assert platform_of(nodes) is GPU and platform_of(nodes[2:]) is CPU
    found, labels = topology_of_nodes(nodes, GPU, {})
    assert [(i.name, i.hosts, i.devices) for i in found.islands] == [("island0", 1, 4), ("island1", 1, 2)]
    assert not labels
    nodes = [node({SLICE: name}, TPU=devices) for name, devices in (("b", 5), ("a", 2), ("b", 4))] + [node(TPU=8)]
    assert platform_of(nodes) is TPU
    found, labels = topology_of_nodes(nodes, TPU, {})
    assert [(i.hosts, i.devices) for i in found.islands] == [(1, 2), (2, 4), (1, 8)]  # all nodes of a slice have 4
    assert labels == {"island0": {SLICE: "a"}, "island1": {SLICE: "b"}}
    check_gangs([gang_of(island, TPU, labels) for island in found.islands], nodes)


def test_labels_select_nodes() -> None:
    nodes = [node(A7, CPU=4), node(CPU=8)]
    found, labels = topology_of_nodes(nodes, CPU, read_labels(["rack=a7"], ()))
    assert [i.devices for i in found.islands] == [4]
    assert gang_of(found.islands[0], CPU, labels) == HostGang("island0", 1, "CPU", 4, A7)
    labels = read_labels(["island1:rack=a7", "zone=eu.west/1"], ("island0", "island1"))
    assert labels == {"island1": A7, "": {"zone": "eu.west/1"}}
    assert str(gang_of(Island("island1", 4, 2), CPU, labels)) == "2 nodes with 4 CPU free each, zone=eu.west/1, rack=a7"
    for text in ("rack", "=a7", "rack=", "island7:rack=a7"):
        assert code_of(read_labels, [text], ("island0",)) == "PWC0707"


@pytest.mark.parametrize(
    ("topology", "nodes", "fits"),
    [
        ("islands=2,devices=4", [node(CPU=8)], True),
        ("islands=3,devices=4", [node(CPU=8)], False),
        ("islands=1,devices=9", [node(CPU=8), node(CPU=8)], False),
        ("islands=1,hosts=2,devices=4", [node(CPU=8)], False),
        ("islands=1,hosts=2,devices=4", [node(CPU=8), node(CPU=4)], True),
        ("islands=1,devices=1", [], False),
        ("islands=2,devices=4", [node(CPU=0), node(CPU=7)], False),
    ],
)
def test_a_topology_that_the_nodes_cannot_hold_is_refused(topology: str, nodes: Sequence[RayNode], fits: bool) -> None:
    gangs = [gang_of(island, CPU, {}) for island in parse_topology(topology).islands]
    assert code_of(check_gangs, gangs, nodes) == ("" if fits else "PWC0927")
    assert code_of(topology_of_nodes, [node(CPU=0)], CPU, {}) == "PWC0927"


def test_a_ray_that_other_machines_can_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for here in ("127.0.0.1:6379", "localhost:6379", "[::1]:6379", "127.0.0.1", "::1"):
        assert is_loopback(here)
        check_protected(here)
    for far in ("10.0.0.2:6379", "head.example:6379", "0.0.0.0:6379", "10.0.0.2", "fe80::1"):
        assert code_of(check_protected, far) == "PWC0926"
    code, _, errors = pwc_here("cluster", "start", "--ray", "10.0.0.2:6379", "islands=1,devices=1")
    assert code != 0 and "PWC0926" in errors and "RAY_AUTH_MODE=disabled" in errors
    for address, wanted in (("127.0.0.1", ""), ("0.0.0.0", "PWC0926"), ("::", "PWC0926")):
        with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
            assert code_of(check_protected, f"127.0.0.1:{server.getsockname()[1]}") == wanted
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    check_protected("10.0.0.2:6379")


def test_nodes_of_other_machines_are_refused() -> None:
    check_here([node(CPU=1)])
    for far in (
        RayNode({}, {}, "10.0.0.2", "elsewhere", str(Path(__file__))),
        RayNode({}, {}, "10.0.0.2", socket.gethostname(), "/nowhere/raylet"),
    ):
        assert code_of(check_here, [node(CPU=1), far]) == "PWC0912"


def test_the_error_without_ray_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    address = str(tmp_path / "c")
    code, _, errors = pwc_here("cluster", "start", "--ray", "local", "islands=1,devices=1", "--address", address)
    assert code != 0 and "PWC0925" in errors and "pathways-mpmd[ray]" in errors
    assert not (tmp_path / "c").exists()


def test_a_ray_request_states_the_number_of_local_nodes() -> None:
    assert [RayRequest(text).nodes for text in ("local", "local:3", "10.0.0.2:6379")] == [0, 3, None]
    for text in ("local:", "local:0", "local:x"):
        assert code_of(lambda text=text: RayRequest(text).nodes) == "PWC0707"


def test_options_of_ray_are_refused_without_ray(tmp_path: Path) -> None:
    address = ["--address", str(tmp_path / "c")]
    for arguments in (["islands=1,devices=1", "--label", "a=b"], ["islands=1,devices=1", "--platform", "cpu"], []):
        assert pwc_here("cluster", "start", *arguments, *address)[0] == 2


KEEPER = """
import os, sys
from pathlib import Path
from pathways.runtime.launch.ray_process import ProcessKeeper
os.environ["PYTHONPATH"] = {path!r}
keeper = ProcessKeeper()
print(keeper.start("support.waits_forever", [], {log!r}, {{}}, False), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_process_ends_with_its_actor(frozen: bool, tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    script = KEEPER.format(path=path, log=str(tmp_path / "log"))
    with start_python("-c", script, PYTHONPATH=path) as actor:
        assert actor.stdout is not None
        pid = int(actor.stdout.readline())
        assert becomes(lambda: "there" in (tmp_path / "log").read_text())
        if frozen:
            os.kill(pid, signal.SIGSTOP)
        actor.kill()
    assert becomes(lambda: not is_alive(pid))


MEMBER_KEEPER = """
import os, sys, types
from pathways.runtime.launch.ray_process import ProcessKeeper
os.environ["PYTHONPATH"] = {path!r}
sys.modules["ray.util"] = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
keeper = ProcessKeeper()
print(keeper.start_member("support.waits_forever", [], {{"host.key": b"secret"}}, {{}}), flush=True)
if sys.stdin.readline() == "wait\\n":
    os.kill(keeper._process.pid, 9)
    keeper.wait()
    print("ended", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["the host", "the actor"])
def test_the_keys_of_a_member_go_with_its_host_and_with_its_actor(killed: str, tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    with start_python("-c", MEMBER_KEEPER.format(path=path), PYTHONPATH=path, TMPDIR=str(tmp_path)) as actor:
        assert actor.stdout is not None and actor.stdin is not None
        pid = int(actor.stdout.readline())
        assert [path.read_bytes() for path in tmp_path.glob("pathways-*/host.key")] == [b"secret"]
        if killed == "the host":
            actor.stdin.write("wait\n")
            actor.stdin.flush()
            assert actor.stdout.readline() == "ended\n"
            assert not list(tmp_path.iterdir())
        actor.kill()
    assert becomes(lambda: not is_alive(pid) and not list(tmp_path.iterdir()))


def test_a_process_whose_parent_has_ended_does_not_start() -> None:
    with pytest.raises(SystemExit, match="has exited"):
        tie(1 << 30)


def becomes(true: Callable[[], bool]) -> bool:
    """Waits until a condition is true; returns whether it is."""
    for _ in range(int(PATIENCE / 0.02)):
        if true():
            return True
        threading.Event().wait(0.02)
    return False


class FakeRay:
    """A Ray whose nodes are free once `free` is set, and whose processes end once `ended` is set."""

    def __init__(self) -> None:
        self.free, self.ended = threading.Event(), threading.Event()
        self.killed: list[Any] = []
        self.is_left = False

    def shutdown(self) -> None:
        self.is_left = True

    def wait(self, found: Sequence[Any], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Any], list[Any]]:
        if found[0] == "end":
            return ([found[0]], []) if self.ended.wait(timeout) else ([], list(found))
        return list(found), []

    def get(self, of: Any) -> Any:
        return "it ended with 3" if of == "end" else of

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


class FakeActor:
    """An actor whose call of `wait` returns the end of its process."""

    class Wait:
        @staticmethod
        def remote() -> str:
            return "end"

    wait = Wait


def test_a_gang_waits_for_nodes_and_reports_the_end_of_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray, given, left = FakeRay(), list[str](), list[Any]()

    class Group:
        def wait(self, seconds: float) -> bool:
            return ray.free.wait(seconds)

    monkeypatch.setattr(ray_hosts, "UNPLACED_NOTE_DELAY_S", 0.0)
    monkeypatch.setattr(ray_hosts, "group_of", lambda *_: Group())  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "has_places", lambda _: True)  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "keepers_in", lambda *_: [FakeActor()])  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "leave_group", left.append)

    def start_in(actor: Any, module: str, arguments: Any, log: Path, environment: dict[str, str]) -> int:
        given.append(environment["PATHWAYS_TICKET"])
        return 4711

    monkeypatch.setattr(ray_hosts, "start_in", start_in)
    launcher = RayLauncher(ray, tmp_path, "cpu", ONE_EACH, {})
    as_asked: HostLauncher = launcher
    hosts = as_asked.start(Island("island0", devices=4), 0, ["a ticket"])
    assert becomes(lambda: hosts.waits() == "a node with 4 CPU free") and not hosts.pids and not hosts.ended()
    ray.free.set()
    assert becomes(lambda: list(hosts.pids) == [4711]) and given == ["a ticket"]
    assert not hosts.waits() and not hosts.ended()
    ray.ended.set()
    assert becomes(lambda: hosts.ended() == "it ended with 3") and not ray.killed
    hosts.kill()
    assert becomes(lambda: len(ray.killed) == 1 and len(left) == 1)


def test_each_host_of_a_gang_on_other_machines_starts_with_its_ticket_and_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray, given, over = FakeRay(), list[tuple[str, Path, str]](), threading.Event()
    ray.free.set()
    group = SimpleNamespace(wait=ray.free.wait)
    service = SimpleNamespace(address="10.0.0.1:9", end=over.set)
    monkeypatch.setattr(ray_hosts, "group_of", lambda *_: group)  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "has_places", lambda _: True)  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "keepers_in", lambda *_: [FakeActor(), FakeActor()])  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "leave_group", lambda _: None)  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "start_group_service", lambda *_: service)  # pyright: ignore
    monkeypatch.setattr(ray_hosts, "member_folder", lambda keys, role, name: keys / f"{role} {name}")  # pyright: ignore

    def start_member_in(actor: Any, module: str, arguments: Any, keys: Path, environment: dict[str, str]) -> int:
        given.append((arguments[arguments.index("--connect") + 1], keys, environment["PATHWAYS_TICKET"]))
        return 4711 + len(given)

    monkeypatch.setattr(ray_hosts, "start_member_in", start_member_in)
    ranks = RankTable({"island0": 2})
    launcher = RayLauncher(ray, tmp_path, "cpu", ranks, {}, ("10.0.0.1:7", tmp_path))
    hosts = launcher.start(Island("island0", devices=4, hosts=2), 0, ["first", "second"])
    assert becomes(lambda: bool(hosts.pids or hosts.ended())) and list(hosts.pids) == [4712, 4713]
    folders = [tmp_path / f"host {name}" for name in ranks.names("island0")]
    assert given == list(zip(["10.0.0.1:7"] * 2, folders, ["first", "second"], strict=True))
    launcher.close()
    assert len(ray.killed) == 2 and over.is_set() and ray.is_left


def test_the_actor_of_a_controller_fits_on_the_head_beside_others() -> None:
    """The head node has one unit of the resource that names it."""
    asked: list[dict[str, Any]] = []
    actor = SimpleNamespace(options=lambda **options: asked.append(options) or SimpleNamespace(remote=lambda: "actor"))  # pyright: ignore
    ray = SimpleNamespace(remote=lambda **_: lambda _: actor)  # pyright: ignore
    assert keeper_on_head(ray, "a name") == "actor"
    (options,) = asked
    assert options["name"] == "a name" and options["lifetime"] == "detached"
    ((resource, amount),) = options["resources"].items()
    assert resource == "node:__internal_head__" and 0 < 100 * amount <= 1


@pytest.mark.parametrize(
    ("topology", "nodes", "size"),
    [
        ("islands=1,devices=3", 0, (2, 3)),
        ("islands=3,devices=4", 0, (2, 8)),
        ("islands=3,devices=4", 3, (3, 4)),
        ("islands=2,hosts=5,devices=2", 0, (5, 4)),
        ("", 0, (2, 4)),
        ("", 5, (5, 4)),
    ],
)
def test_a_private_ray_is_large_enough_for_the_topology(topology: str, nodes: int, size: tuple[int, int]) -> None:
    stated = parse_topology(topology) if topology else None
    assert ray_start._size(stated, nodes) == size  # pyright: ignore[reportPrivateUsage]
    if stated is not None:
        count, cpus = size
        check_gangs([gang_of(island, CPU, {}) for island in stated.islands], [node(CPU=cpus)] * count)
