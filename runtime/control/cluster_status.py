"""Builds the status of a cluster as a dictionary: islands, hosts, memory, running and waiting runs, clients. The
controller calls it when `pwc status`, `pwc top` or a client asks for the status.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from pathways.runtime.control.delayed_runs import reasons_to_wait
from pathways.runtime.control.dispatcher import Dispatcher
from pathways.runtime.control.member import Member
from pathways.runtime.control.sessions import ClientSession


def status_of_cluster(
    platform: str, members: Iterable[Member], dispatcher: Dispatcher, sessions: Collection[ClientSession]
) -> dict[str, Any]:
    """Returns the status for `pwc status`: islands with their hosts, and clients."""
    scheduler, ledger = dispatcher.scheduler, dispatcher.ledger
    islands: list[dict[str, Any]] = []
    for member in members:
        numbers = range(member.first, member.first + member.island.size)
        if member.removal is not None and member.epoch.state == "away":
            continue
        held = {
            label: max((counts[n] for n in numbers), default=0)
            for session in sessions
            for label, counts in session.held.items()
        }
        reserved = max((ledger.reserved.get((member.name, at), 0) for at in range(member.island.size)), default=0)
        islands.append(
            {
                "name": member.name,
                "kind": platform if member.island.kind == "any" else member.island.kind,
                "devices": member.island.size,
                "lost": [] if member.is_up else list(range(member.island.size)),
                "memory": member.island.memory,
                "reserved": reserved,
                "held": {label: size for label, size in held.items() if size},
                "waiting": [[r.client, r.program] for r in scheduler.waiting.values() if member.name in r.islands],
                "running": [[r.client, r.program] for r in scheduler.running.values() if member.name in r.islands],
                "ended": dispatcher.ended_on[member.number],
                "arrays": member.arrays,
                "open_ports": sum(rank.open_ports for rank in member.ranks),
                "epoch": member.epoch.number,
                "state": member.epoch.state,
                "waits": member.process.waits() if member.process is not None and not member.is_up else "",
                "hosts": _hosts_of(member),
            }
        )
    runs = Counter(run.session.number for run in dispatcher.runs.values())
    why = reasons_to_wait(dispatcher, sessions)
    clients = [_client_status(s, runs[s.number], why.get(s.number, "")) for s in sessions]
    return {"islands": islands, "clients": clients}


def _client_status(session: ClientSession, runs: int, why: str) -> dict[str, Any]:
    """Returns a client's status for `pwc status`: its runs, why they wait, and the usage of the clients inside it."""
    had = {k: {"weight": h.weight, "runs": h.runs, "seconds": h.seconds} for k, h in session.had.items()}
    return {"name": session.name, "number": session.number, "pid": session.pid, "runs": runs, "why": why, "had": had}


def _hosts_of(member: Member) -> list[dict[str, Any]]:
    """Returns the hosts of an island for `pwc status`. The process is 0 if it is not known.

    `here` tells whether it is a process of the controller's machine.
    """
    here = member.process is not None and member.process.is_here
    pids = list(member.process.pids) if member.process is not None else []
    pids += [0] * (len(member.ranks) - len(pids))
    return [
        {"name": rank.name, "pid": pid, "here": here, "arrays": rank.arrays}
        for rank, pid in zip(member.ranks, pids, strict=True)
    ]
