"""Implements the controller of a cluster, to which all client and host processes connect. It schedules the clients'
runs on the hosts. It must not use JAX.

It runs on one event-loop thread. Large inputs and results do not pass through it: clients exchange them with the hosts
directly.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.topology import Topology, write_topology
from pathways.runtime.control.cluster_status import status_of_cluster
from pathways.runtime.control.delayed_runs import refuse_hopeless
from pathways.runtime.control.dispatcher import Dispatcher, controller_failed
from pathways.runtime.control.island_changes import IslandChanges
from pathways.runtime.control.member import Member, Rank, all_ranks, spec_of
from pathways.runtime.control.members import Members, print_note
from pathways.runtime.control.scheduling import SchedulingPolicy
from pathways.runtime.control.sessions import ClientNumbers, ClientPeer, ClientSession
from pathways.runtime.errors import ClientClosed
from pathways.runtime.journal import last_events
from pathways.runtime.launch.launcher import HostLauncher
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import NO_ANSWER
from pathways.runtime.wire.credentials import Caller, process_at
from pathways.runtime.wire.encoding import decode, max_bytes, read_expected
from pathways.runtime.wire.errors import BadMessage, NoCluster
from pathways.runtime.wire.fields import check_fields
from pathways.runtime.wire.frames import FrameReader, Payload, Transport
from pathways.runtime.wire.identity import Identity
from pathways.runtime.wire.ids import MAX_CLIENTS, client_of
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import difference
from pathways.runtime.wire.peer import Peer, Receive

MAX_FRAME_BYTES = 1 << 26
"""Maximum bytes of a message to a controller. Array data are not sent to it."""
MAX_UNREAD_BYTES = 1 << 26
"""Maximum unread bytes of a connected process. Above this limit, the process is disconnected."""
MAX_UNREAD_BY_HOST_BYTES = 1 << 30
"""The same limit for a host, which may receive the queues of many clients at once."""
HEARTBEAT_INTERVAL_S = 0.5
"""Interval of heartbeats to clients."""
FIRST_MESSAGE_TIMEOUT_S = 10.0
"""Time limit in seconds for the first message of a connecting process."""
REUSE_POLL_S = 1.0
"""Interval of checks whether a client number can be reused."""
OF_CLIENTS = (m.Submit, m.Relayed, m.Hold, m.Cancel, m.Introduce, m.Retire, m.Loaded, m.Ask, m.ChangeIslands)
"""Message types that a client may send."""
FIRST = (m.Hello, m.ClientHello, m.Ask, m.ChangeIslands)
"""Message types that a process may send before it is registered as a client or a host."""
MEMORY_CHECK_INTERVAL_S = 0.5
"""Interval of checks of runs that wait for memory."""


class ClusterController:
    """The server to which all clients and hosts of a cluster connect. Clients find it at `address`."""

    def __init__(
        self,
        loop: Loop,
        topology: Topology,
        platform: str,
        policy: SchedulingPolicy,
        launcher: HostLauncher,
        address: str,
        log: Callable[[str], None] = print_note,
    ) -> None:
        """`log` receives notes on connecting and disconnecting processes (shown by `pwc cluster logs`)."""
        self._loop, self._platform, self._address, self._log = loop, platform, address, log
        self._sessions: dict[int, ClientSession] = {}
        self.bind = ""
        """The address for members on other machines; empty if there is none."""
        self._numbers = ClientNumbers()
        self._policy = policy
        self.members = Members(loop, launcher, topology.islands, self._host_connected, self._host_lost, log)
        self.dispatcher = Dispatcher(self.members.all, policy)
        self.changes = IslandChanges(loop, topology, self.members, self.dispatcher, self._broadcast)
        self.members.begin()
        loop.every(MEMORY_CHECK_INTERVAL_S, lambda: refuse_hopeless(self.dispatcher, self._sessions.values()))
        loop.every(HEARTBEAT_INTERVAL_S, self._beat)

    def accept(self, sock: socket.socket) -> None:
        """Accepts a local process of this user. Its first message identifies it."""
        pid, user = process_at(sock)
        if user != os.getuid():
            sock.close()
            return
        self._let_in(sock, Caller(pid))

    def accept_member(self, stream: Transport, member: Identity) -> None:
        """Accepts a cluster member from another machine."""
        self._let_in(stream, Caller(member=member))

    def _let_in(self, stream: Transport, caller: Caller) -> None:
        """Waits for the first message of a process; disconnects a process that sends none."""
        first = self._receiver(caller)
        peer = Peer(self._loop, stream, FrameReader(lambda kind: min(MAX_FRAME_BYTES, max_bytes(kind))))
        peer.max_unread_bytes = MAX_UNREAD_BYTES
        peer.begin(first, lambda _, reason: self._log(f"a process disconnected before it registered: {reason}"))
        late = f"it has sent no message in {FIRST_MESSAGE_TIMEOUT_S:g} seconds"
        self._loop.after(FIRST_MESSAGE_TIMEOUT_S, lambda: peer.end(late) if peer.receive is first else None)

    def _receiver(self, caller: Caller) -> Receive:
        return _guarded(lambda peer, kind, data: self._receive_first(peer, read_expected(kind, data, FIRST), caller))

    def _receive_first(self, peer: Peer, message: m.Message, caller: Caller) -> None:
        peer.receive = self._receiver(caller)  # it has sent its first message, and may send more requests
        match message:
            case m.Hello():
                caller.check("host", self._address)
                rank = self.members.hello(peer, message, caller)
                peer.max_unread_bytes = MAX_UNREAD_BY_HOST_BYTES
                peer.receive = lambda peer, kind, payload: self._from_host(rank, kind, payload)
                peer.on_end = lambda peer, reason: self.members.ended(rank, peer, reason)
                for session in self._sessions.values():
                    rank.post(session.expected_by(rank))
            case m.ClientHello():
                caller.check("client", self._address)
                self._register_client(peer, message, caller)
            case m.Ask() if message.what == "host" and caller.member is not None:
                caller.check("host", self._address)
                self._send_spec(caller.member.name, peer, message.request)
            case m.Ask():  # from a process that is not a client
                caller.check("client", self._address)
                peer.on_end = lambda peer, reason: None  # it disconnects after its answer
                self._answer(peer, message)
            case m.ChangeIslands():  # also from a process that is not a client
                caller.check("client", self._address)
                self._change(peer, message)
            case _:
                raise _unknown(message)

    def _send_spec(self, name: str, peer: Peer, request: int) -> None:
        def send(spec: dict[str, Any]) -> None:
            peer.send(m.Answer(request, value=json.dumps(spec | {"platform": self._platform})))

        self.members.send_spec(name, peer, send)

    def _register_client(self, peer: Peer, message: m.ClientHello, caller: Caller) -> None:
        """Registers a client. Raises PWC0918 for another version, or if no client number is free."""
        if other := difference(message.versions):
            raise PathwaysError(NoCluster(address=self._address, reason=f"the versions differ: {other}"))
        check_fields(message, 0, str(caller))
        number = self._numbers.take()
        if number is None:
            raise PathwaysError(NoCluster(address=self._address, reason=f"it has {MAX_CLIENTS:,} clients, the maximum"))
        member = "" if caller.member is None else caller.member.name
        name = f"{message.name} of {member}" if member else message.name
        session = ClientSession(number, name, caller.pid or message.pid, peer, member)
        peer.receive = _guarded(lambda _, kind, payload: self._from_client(session, kind, payload))
        peer.on_end = lambda peer, reason: self._client_left(session, reason)
        self._welcome(session)

    def register_own_client(self, peer: ClientPeer) -> ClientSession:
        """Registers the client in this process, which has started the cluster, as number 0."""
        session = ClientSession(0, "", os.getpid(), peer)
        self._welcome(session)
        return session

    def _welcome(self, session: ClientSession) -> None:
        """Notifies all hosts of a client, and sends the client the endpoints of the hosts."""
        self._sessions[session.number] = session
        for rank in all_ranks(self.members.all):
            rank.post(session.expected_by(rank))
        topology, policy = write_topology(self.changes.numbered), self._policy.name
        hosts = spec_of(self.members.all)
        session.peer.send(m.Welcome(session.number, session.ticket, self._platform, topology, policy, hosts))
        for message in self.changes.leaving:
            session.peer.send(message)

    def _broadcast(self, message: m.Message) -> None:
        """Sends a message to all clients."""
        for session in self._sessions.values():
            session.peer.send(message)

    def _beat(self) -> None:
        """Sends a heartbeat to all clients."""
        self._broadcast(m.Beat(0, 0))

    def _change(self, peer: ClientPeer, message: m.ChangeIslands) -> None:
        def answer(name: str, cause: Diagnostic | None) -> None:
            error = "" if cause is None else write_diagnostic(cause)
            peer.send(m.Answer(message.request, value=json.dumps(name), error=error))

        self.changes.change(message, answer)

    def _client_left(self, session: ClientSession, reason: str) -> None:
        session.life.transition("leave")
        del self._sessions[session.number]
        self.dispatcher.left_by(session, ClientClosed(client=session.label(0), have_=reason))
        left = {rank for rank in all_ranks(self.members.all) if rank.peer is not None}
        if not left:
            self._reuse(session)

        def forgotten(rank: Rank) -> None:
            left.discard(rank)
            if not left:
                self._reuse(session)

        for rank in list(left):
            self.members.ask(rank, lambda n: m.Forget(n, session.number), lambda _, rank=rank: forgotten(rank))

    def _reuse(self, session: ClientSession) -> None:
        """Frees the number of a client that all hosts have removed, after its last runs complete."""
        if any(client_of(run) == session.number for run in self.dispatcher.runs):
            self._loop.after(REUSE_POLL_S, lambda: self._reuse(session))
        else:
            session.life.transition("be forgotten")
            self._numbers.give_back(session.number)

    def _from_client(self, session: ClientSession, kind: int, payload: Payload) -> None:
        message = read_expected(kind, payload, OF_CLIENTS)
        check_fields(message, session.number, session.label(0))
        self.deliver(session, message, len(payload))

    def deliver(self, session: ClientSession, message: m.Message, size: int = 0) -> None:
        """Handles a checked message of a client. `size`: its bytes on a stream."""
        try:
            self._handle_client(session, message, size)
        except PathwaysError:
            raise
        except Exception as error:
            if not self.failed_at(message, error):
                raise

    def failed_at(self, message: m.Message, error: Exception) -> bool:
        """Fails only the run that a message names, after an internal error of the controller.

        Returns False if the message names no run.
        """
        cause = controller_failed(f"the handling of a {type(message).__name__} message", error)
        run = getattr(message, "run", None)
        if not isinstance(run, int) or isinstance(message, m.Hold):
            return False
        session = self._sessions.get(client_of(run))
        if run in self.dispatcher.runs:
            try:
                self.dispatcher.fail(run, cause)
                return True
            except Exception as another:
                controller_failed("the handling of a failed run", another)
        if session is not None:
            session.peer.send(m.RunRefused(run, write_diagnostic(cause)))
        return True

    def _handle_client(self, session: ClientSession, message: m.Message, size: int) -> None:
        match message:
            case m.Submit():
                self.dispatcher.submit(session, message)
            case m.Relayed():
                self.dispatcher.pass_on(session, message)
            case m.Hold():
                self.dispatcher.hold(session, message)
            case m.Cancel():
                self.dispatcher.cancel(message.run, read_diagnostic(message.cause))
            case m.Introduce():
                session.introduce(message, size, self.dispatcher.cost_of)
            case m.Retire():
                session.retire(message.number)
            case m.Loaded():
                self.dispatcher.loaded(session, message)
            case m.Ask():
                self._answer(session.peer, message)
            case m.ChangeIslands():
                self._change(session.peer, message)
            case _:
                raise _unknown(message)

    def _from_host(self, rank: Rank, kind: int, payload: Payload) -> None:
        """Handles a message from a host."""
        message = decode(kind, payload)
        try:
            self._handle_host(rank, message)
        except PathwaysError:
            raise
        except Exception as error:  # an error of this controller: the host is still usable
            self.failed_at(message, error)

    def _handle_host(self, rank: Rank, message: m.Message) -> None:
        match message:
            case m.Done() | m.Failed():
                self._run_ended(rank, message)
            case m.Decided() | m.Undecided() | m.Reached():
                run = self.dispatcher.runs.get(message.run)
                if run is not None and run.relay is not None:
                    run.relay.deliver(rank.name, message)
            case m.Answer():
                self.members.deliver(rank, message)
            case m.Unusable():
                self.members.unusable(rank, message)
            case m.Missing():
                self.members.missing(rank, message, self.dispatcher.hosts_at(message.run))
            case m.Beat():
                rank.arrays, rank.open_ports = message.arrays, message.open_ports
            case _:
                raise _unknown(message)

    def _run_ended(self, rank: Rank, message: m.Done | m.Failed) -> None:
        """Notifies the client that a run completed on a host, unless the host already has, and starts waiting runs."""
        session = self._sessions.get(client_of(message.run))
        if session is not None and not message.is_reported:
            session.peer.pass_on(rank.member.number, rank.member.epoch.number, rank.rank, message)
        self.dispatcher.ended(rank, message.run, message.nanoseconds)

    def _host_connected(self, member: Member) -> None:
        self._broadcast(m.HostConnected(member.name, member.epoch.number, member.addresses))

    def _host_lost(self, member: Member, epoch: int, cause: Diagnostic) -> None:
        self.dispatcher.island_lost(member, cause)
        self._broadcast(m.HostDisconnected(member.name, epoch, write_diagnostic(cause)))
        if member.epoch.state == "away":
            self._broadcast(m.HostConnected(member.name, member.epoch.number, {}))

    def _answer(self, peer: ClientPeer, message: m.Ask) -> None:
        def answer(value: Any) -> None:
            peer.send(m.Answer(message.request, value=json.dumps(value)))

        match message.what:
            case "status":
                answer(self._status())
            case "stacks":
                self._stacks(answer)
            case "stop":
                answer({})
                self._loop.soon(self.close)
            case _:
                raise PathwaysError(BadMessage(have_=f"a request for {message.what}", rule="status, stacks or stop"))

    def _stacks(self, answer: Callable[[Any], None]) -> None:
        """Answers with the stacks of all hosts when all have replied, or after two seconds."""
        ranks = list(all_ranks(self.members.all))
        stacks = {rank.name: NO_ANSWER for rank in ranks}
        missing = {rank.name for rank in ranks if rank.peer is not None}
        is_answered = False

        def finish() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                answer({"hosts": stacks, "controller": last_events()})

        def receive(name: str, found: m.Answer | Diagnostic) -> None:
            stacks[name] = found.value if isinstance(found, m.Answer) else found.text(found.have)
            missing.discard(name)
            if not missing:
                finish()

        for rank in ranks:
            if rank.peer is not None:
                self.members.ask(rank, m.ReportStacks, lambda a, name=rank.name: receive(name, a))
        self._loop.after(2.0 if missing else 0.0, finish)

    def _status(self) -> dict[str, Any]:
        known = {"policy": self._policy.name, "pid": os.getpid(), "bind": self.bind, "clock": time.monotonic()}
        return known | status_of_cluster(self._platform, self.members.all, self.dispatcher, self._sessions.values())

    def close(self) -> None:
        """Terminates all hosts and stops the loop."""
        self.members.close()
        self._loop.end()


def _guarded(receive: Receive) -> Receive:
    """Wraps a receiver: sends a process the error of its message before its stream is closed."""

    def take(peer: Peer, kind: int, payload: Payload) -> None:
        try:
            receive(peer, kind, payload)
        except PathwaysError as error:
            peer.send(m.RunRefused(0, write_diagnostic(error.diagnostic)))
            raise

    return take


def _unknown(message: m.Message) -> PathwaysError:
    return PathwaysError(BadMessage(have_=f"a {type(message).__name__}", rule="a message for a controller"))
