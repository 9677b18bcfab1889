"""What a controller of its own spends on a host and a run: python bench/controller.py [--hosts 16,128,512] [--runs 40].

With --tls a second row of each has the hosts and the client come to a port of 127.0.0.1, under mutual TLS.

Hosts are fakes in one process, each with a socket of its own, which say at once that a run is done: what is measured
is the controller, with a client that starts runs that span all hosts, four at a time. Beside it the bare exchange: the
same frames over as many sockets, written and read by a loop that does nothing else. A computation on all hosts is worth
its dispatch where it takes longer than the last column (paper, section 5.1: 2.3 ms at 16 hosts, 35 ms at 512).
"""

import argparse
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.files import write_whole
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.launch.launcher import Started
from pathways.runtime.launch.local_hosts import CONTROLLER
from pathways.runtime.launch.ray_api import connect_to_ray
from pathways.runtime.launch.ray_trial import trial_cluster
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import LOOPBACK, Address, listening_at, prepare
from pathways.runtime.wire.certificates import make_folders
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode, frame_bytes, pack_parcels
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.identity import ROLES
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.tls import read_keys
from pathways.runtime.wire.tls_ports import WELCOME, LoopListener, join_as
from pathways.runtime.wire.tls_socket import Handshake, TlsSocket

IN_FLIGHT = 4


class FakeLauncher(Started):
    """Hosts that come by themselves, all of one process."""

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
        """They end with their sockets."""


def listening(folder: str, tls: bool) -> socket.socket:
    """Where hosts and clients come."""
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
    """A stream of a host, which is never waited for where it reads."""
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
    """All hosts, in one loop: each says hello, is joined, and answers runs."""
    go.wait()
    selector = selectors.DefaultSelector()
    for number in range(islands):
        sock = come(folder, tls, f"island{number}")
        ticket = Path(folder, f"island{number}")
        shown = ticket.read_text() if ticket.exists() else ""
        hello = m.Hello(f"island{number}", os.getpid(), VERSIONS, "nowhere", shown)
        sock.send(frame_bytes(hello))
        selector.register(sock, selectors.EVENT_READ, bytearray())
    beat = time.monotonic()
    while True:
        for key, _ in selector.select(0.5):
            peer: Any = key.fileobj
            try:
                if not (data := peer.recv(1 << 16)):
                    return
            except BlockingIOError:  # half a record
                continue
            key.data.extend(data)
            answer(peer, key.data)
        if time.monotonic() - beat > 1:
            beat = time.monotonic()
            for key in list(selector.get_map().values()):
                peer = key.fileobj
                peer.send(frame_bytes(m.Beat(0, 0)))


def answer(sock: Any, buffer: bytearray) -> None:
    while len(buffer) >= HEADER.size:
        size, kind = HEADER.unpack_from(buffer)
        if len(buffer) < HEADER.size + size:
            return
        payload = bytes(buffer[HEADER.size : HEADER.size + size])
        del buffer[: HEADER.size + size]
        message = decode(kind, payload)
        if isinstance(message, m.RunPlan):
            sock.send(frame_bytes(m.Done(message.run, 1000)))
        elif isinstance(message, m.Connect):
            value = "{" + ", ".join(f'"{name}": "a"' for name in message.invitations) + "}"
            sock.send(frame_bytes(m.Answer(message.request, value=value)))


def cpu_seconds(pid: int | None) -> float:
    """What a process has computed (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(count: int, runs: int, tls: bool) -> tuple[float, float]:
    """Microseconds of wall time a host and run, through a controller; and of its own CPU time, which others on the
    machine change less."""
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
        control.post(m.ComeIn("bench", os.getpid(), VERSIONS))
        welcome = control.receive()
        assert isinstance(welcome, m.Welcome)
        first = first_id(welcome.client)
        up = sum(bool(json.loads(said)[1]) for said in welcome.hosts.values())
        while up < count:
            up += isinstance(control.receive(), m.HostCame)
        control.post(m.Introduce(0, first, "chain", None, "digest"))

        def submit(number: int) -> None:
            parcels = [(host, 0, [m.RunPlan(first, first + number, 0, first, (first,))]) for host in range(count)]
            control.post(m.Submit(first + number, first, 0, 1 << 20, (), pack_parcels(parcels)))

        def end() -> None:
            left = count
            while left:
                left -= isinstance(control.receive(), m.Relayed)

        times: list[float] = []
        cpu = cpu_seconds(process.pid)
        for _ in range(3):
            begin = time.perf_counter()
            for number in range(runs):
                submit(len(times) * runs + number + 1)
                if number >= IN_FLIGHT:
                    end()
            for _ in range(min(IN_FLIGHT, runs)):
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
    """The stream of a host that has come."""
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
    """The same frames, to and from as many sockets, by a loop that does nothing else."""
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


def by_ray(actors: int = 4, calls: int = 500) -> tuple[float, float]:
    """Microseconds to submit a call of an actor, and until it is answered, of many at once."""
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
