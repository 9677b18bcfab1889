"""Times a separate controller for each host and run: python bench/controller.py [--hosts 16,128,512] [--runs 40].

With --tls a second row of each has the hosts and the client connect to a port of 127.0.0.1, under mutual TLS.

Hosts are fakes in one process, each with its own socket, which report at once that a run is done. So only the
controller is measured. A client starts runs that span all hosts, four at a time. The bare exchange, for comparison,
sends the same frames over as many sockets, in a loop that does nothing else. Dispatching a computation to all hosts
pays off if the computation takes longer than the last column (paper, section 5.1: 2.3 ms at 16 hosts, 35 ms at 512).

The last rows time the scheduler alone, if 2, 64 or 1,024 clients each always have four runs in line on two islands.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import select
import selectors
import socket
import ssl
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.files import write_whole
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE, Request
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.launch.launcher import Started
from pathways.runtime.launch.local_hosts import CONTROLLER
from pathways.runtime.launch.ray_api import connect_to_ray
from pathways.runtime.launch.ray_trial import trial_cluster
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import LOOPBACK, Address, listening_at, prepare
from pathways.runtime.wire.certificates import make_folders
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode, frame_bytes, pack_parcels, read_frames
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.identity import ROLES
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.load_proofs import loaded_as, prove
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.tls import read_keys
from pathways.runtime.wire.tls_ports import WELCOME, LoopListener, join_as
from pathways.runtime.wire.tls_socket import Handshake, TlsSocket

MAX_RUNS_IN_FLIGHT = 4


class FakeLauncher(Started):
    """A launcher whose hosts connect by themselves, all of one process."""

    def __init__(self, pid: int, folder: str) -> None:
        self._pid, self._folder = pid, Path(folder)

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> "FakeLauncher":
        (self._folder / island.name).write_text(tickets[0])
        return self

    def ended(self) -> str:
        return ""

    def kill(self) -> None:
        """Does nothing: the hosts end with their sockets."""


def listening(folder: str, tls: bool) -> socket.socket:
    """Opens the listening socket for hosts and clients."""
    if tls:
        listener = listening_at((LOOPBACK, 0))
        write_whole(f"{folder}/port", str(listener.getsockname()[1]))
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{CONTROLLER}")
    listener.listen(1024)
    return listener


def port(folder: str) -> Address:
    return LOOPBACK, int(Path(f"{folder}/port").read_text())


def come(folder: str, tls: bool, member: str) -> Any:
    """Connects a host and returns its stream, which is read only after the selector reports data."""
    if not tls:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"{folder}/{CONTROLLER}")
        return sock
    sock = socket.create_connection(port(folder))
    prepare(sock)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talking = read_keys(Path(folder) / f"host.{member}").connecting.wrap_bio(incoming, outgoing)
    done = False
    while not done:
        try:
            talking.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            incoming.write(sock.recv(1 << 16))
    sock.sendall(outgoing.read())
    stream = TlsSocket(sock, talking, incoming, outgoing)
    assert stream.recv(1 << 16) == WELCOME
    return stream


def controller(folder: str, islands: int, hosts: int, ready: Any, tls: bool) -> None:
    loop = Loop()
    with listening(folder, tls) as listener:
        topology = Topology(tuple(Island(f"island{n}", devices=1) for n in range(islands)))
        launcher = FakeLauncher(hosts, folder)
        made = ClusterController(loop, topology, "cpu", SCHEDULING_POLICIES[STRIDE](), launcher, folder)
        if tls:
            keys = read_keys(Path(folder) / "controller")
            LoopListener(loop, listener, keys, ROLES, made.accept_member)
        else:
            loop.listen(listener, made.accept)
        ready.set()
        loop.run()


def hosts(folder: str, islands: int, go: Any, tls: bool) -> None:
    """Runs all hosts in one loop: each sends Hello, joins, and answers runs."""
    go.wait()
    selector = selectors.DefaultSelector()
    for number in range(islands):
        sock = come(folder, tls, f"island{number}")
        ticket = Path(folder, f"island{number}")
        shown = ticket.read_text() if ticket.exists() else ""
        hello = m.Hello(f"island{number}", os.getpid(), VERSIONS, "nowhere", shown)
        sock.send(frame_bytes(hello))
        selector.register(sock, selectors.EVENT_READ, (Path(folder, f"key.island{number}"), bytearray()))
    beat = time.monotonic()
    while True:
        for key, _ in selector.select(0.5):
            peer: Any = key.fileobj
            try:
                if not (data := peer.recv(1 << 16)):
                    return
            except BlockingIOError:  # the TLS record is incomplete
                continue
            key_file, buffer = key.data
            buffer.extend(data)
            answer(peer, buffer, key_file)
        if time.monotonic() - beat > 1:
            beat = time.monotonic()
            for key in list(selector.get_map().values()):
                peer = key.fileobj
                peer.send(frame_bytes(m.Beat(0, 0)))


def answer(sock: Any, buffer: bytearray, key_file: Path) -> None:
    """Answers the messages in a buffer. The client needs the key of its host, to prove what the host has loaded."""
    while len(buffer) >= HEADER.size:
        size, kind = HEADER.unpack_from(buffer)
        if len(buffer) < HEADER.size + size:
            return
        payload = bytes(buffer[HEADER.size : HEADER.size + size])
        del buffer[: HEADER.size + size]
        message = decode(kind, payload)
        if isinstance(message, m.RunPlan):
            sock.send(frame_bytes(m.Done(message.run, 1000)))
        elif isinstance(message, m.Expect):
            write_whole(key_file, message.key.encode())
        elif isinstance(message, m.Connect):
            value = "{" + ", ".join(f'"{name}": "a"' for name in message.invitations) + "}"
            sock.send(frame_bytes(m.Answer(message.request, value=value)))


def cpu_seconds(pid: int | None) -> float:
    """Returns the CPU seconds of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(count: int, runs: int, tls: bool) -> tuple[float, float]:
    """Returns microseconds for each host and run through a controller: of wall time, and of the controller's CPU time.

    Other load on the machine changes the CPU time less.
    """
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        make_keys(folder, tls, count)
        context = multiprocessing.get_context("spawn")
        go = context.Event()
        fakes = context.Process(target=hosts, args=(folder, count, go, tls), daemon=True)
        fakes.start()
        process = context.Process(target=controller, args=(folder, count, fakes.pid, go, tls), daemon=True)
        process.start()
        go.wait()
        if tls:
            control = join_as(port(folder), read_keys(Path(folder) / "client.bench"), "controller")[0]
        else:
            control = Connection(come(folder, tls, ""))
        control.post(m.ClientHello("bench", os.getpid(), VERSIONS))
        welcome = control.receive()
        assert isinstance(welcome, m.Welcome)
        first = first_id(welcome.client)
        up = sum(bool(json.loads(said)[1]) for said in welcome.hosts.values())
        while up < count:
            up += isinstance(control.receive(), m.HostConnected)
        control.post(m.Introduce(0, first, "chain", None, "digest"))
        loaded = loaded_as(b"", welcome.hosts, None, sequential=False)
        for number in range(count):
            while not (key := Path(folder, f"key.island{number}")).exists():
                time.sleep(0.01)
            control.post(m.Loaded(first, number, prove(key.read_text(), first, loaded)))

        def submit(number: int) -> None:
            parcels = [(host, 0, [m.RunPlan(first, first + number, 0, first, (first,))]) for host in range(count)]
            control.post(m.Submit(first + number, first, 0, 1 << 20, (), pack_parcels(parcels)))

        def end() -> None:
            left = count
            while left:
                said = control.receive()
                assert not isinstance(said, m.RunRefused), said
                left -= len(read_frames(said.blob)) if isinstance(said, m.Relayed) else 0

        times: list[float] = []
        cpu = cpu_seconds(process.pid)
        for _ in range(3):
            begin = time.perf_counter()
            for number in range(runs):
                submit(len(times) * runs + number + 1)
                if number >= MAX_RUNS_IN_FLIGHT:
                    end()
            for _ in range(min(MAX_RUNS_IN_FLIGHT, runs)):
                end()
            times.append((time.perf_counter() - begin) / runs / count)
        cpu = (cpu_seconds(process.pid) - cpu) / 3 / runs / count
        process.kill()
        fakes.kill()
        return statistics.median(times) * 1e6, cpu * 1e6


def make_keys(folder: str, tls: bool, count: int) -> None:
    if tls:
        make_folders(Path(folder), "bench", [f"island{n}" for n in range(count)], ["bench"])


def let_in(listener: socket.socket, folder: str, tls: bool) -> Any:
    """Accepts the connection of a host and returns its stream."""
    sock, _ = listener.accept()
    if not tls:
        return sock
    meeting, found = Handshake(sock, read_keys(Path(folder) / "controller"), ROLES), None
    while found is None:
        select.select([sock], [], [])
        found = meeting.step()
    found[0].send(WELCOME)
    return found[0]


def bare(count: int, runs: int, tls: bool) -> float:
    """Times the same frames, to and from as many sockets, by a loop that does nothing else."""
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        make_keys(folder, tls, count)
        with listening(folder, tls) as listener:
            return exchanged(folder, listener, count, runs, tls)


def exchanged(folder: str, listener: socket.socket, count: int, runs: int, tls: bool) -> float:
    context = multiprocessing.get_context("spawn")
    go = context.Event()
    fakes = context.Process(target=hosts, args=(folder, count, go, tls), daemon=True)
    fakes.start()
    go.set()
    selector = selectors.DefaultSelector()
    peers: list[Any] = []
    for _ in range(count):
        peer = let_in(listener, folder, tls)
        peers.append(peer)
        selector.register(peer, selectors.EVENT_READ)
    for peer in peers:
        select.select([peer], [], [])
        peer.recv(1 << 16)
    frame = frame_bytes(m.RunPlan(1, 2, 0, 3, (4,)))
    size = len(frame_bytes(m.Done(2, 1000)))
    times: list[float] = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(runs):
            for peer in peers:
                peer.send(frame)
            left = count * size
            while left > 0:
                for key, _ in selector.select():
                    found: Any = key.fileobj
                    left -= len(found.recv(1 << 16)) // size * size
        times.append((time.perf_counter() - begin) / runs / count)
    fakes.kill()
    selector.close()
    for peer in peers:
        peer.close()
    return statistics.median(times) * 1e6


def scheduling(clients: int, runs: int = 20_000, waiting: int = 4) -> float:
    """Returns microseconds of the scheduler for each run, if each client always has `waiting` runs in line."""
    scheduler = Scheduler(SCHEDULING_POLICIES[STRIDE]())
    islands = (frozenset({"island0"}), frozenset({"island1"}), frozenset({"island0", "island1"}))
    numbers = itertools.count()
    of: dict[int, int] = {}

    def submit(client: int) -> list[int]:
        number = next(numbers)
        of[number] = client
        return scheduler.submit(Request(number, f"client{client}", "step", islands[number % 3]))

    begun = deque(number for _ in range(waiting) for client in range(clients) for number in submit(client))
    begin = time.perf_counter()
    for _ in range(runs):
        number = begun.popleft()
        begun.extend(scheduler.enqueued(number))
        begun.extend(scheduler.finished(number))
        begun.extend(submit(of.pop(number)))
    return (time.perf_counter() - begin) / runs * 1e6


def by_ray(actors: int = 4, calls: int = 500) -> tuple[float, float]:
    """Returns microseconds to submit a call of an actor, and until it is answered, for many calls at once."""
    with trial_cluster(1, actors) as trial:
        ray: Any = connect_to_ray(trial.address)

        class Host:
            def run(self, number: int) -> int:
                return number

        hosts = [ray.remote(num_cpus=1)(Host).remote() for _ in range(actors)]
        ray.get([host.run.remote(0) for host in hosts])
        begin = time.perf_counter()
        answers = [host.run.remote(n) for n in range(calls // actors) for host in hosts]
        submitted = time.perf_counter()
        ray.get(answers)
        done = time.perf_counter()
        ray.shutdown()
    return (submitted - begin) / len(answers) * 1e6, (done - begin) / len(answers) * 1e6


def main(counts: Sequence[int], runs: int, tls: bool, ray: bool) -> None:
    print(f"{'hosts':>6} {'by':>5} {'controller':>12} {'its CPU':>8} {'bare':>8} {'ratio':>6} {'break-even':>12}")
    for count in counts:
        for way in (False, True) if tls else (False,):
            (ours, cpu), least = measured(count, runs, way), bare(count, runs, way)
            name = "TLS" if way else "Unix"
            row = f"{count:6} {name:>5} {ours:9.1f} us {cpu:5.1f} us {least:5.1f} us {ours / least:6.1f}"
            print(f"{row} {ours * count / 1e3:9.2f} ms", flush=True)
    for clients in (2, 64, 1024):
        print(f"{clients:5} clients: {scheduling(clients):6.1f} us of the scheduler a run", flush=True)
    if ray:
        submit, answered = by_ray()
        print(
            f"Ray: {submit:.1f} us to submit a call of an actor, {answered:.1f} us until it is answered, of 500 at once"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="16,128,512")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--ray", action="store_true", help="beside it, calls of Ray's actors")
    chosen = parser.parse_args()
    main([int(n) for n in chosen.hosts.split(",")], chosen.runs, chosen.tls, chosen.ray)
