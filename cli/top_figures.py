"""Computes the numbers that `pwc top` shows, from two consecutive status replies of a cluster's controller: for
example, runs per second and each client's share of time. Pure functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Status: TypeAlias = Mapping[str, Any]
"""A status as sent by the controller of a cluster."""


@dataclass(frozen=True)
class IslandFigures:
    """One island. Bytes are those of its fullest device; `rate` is runs completed per second."""

    name: str
    kind: str
    devices: int
    state: str
    waits: str
    """The resource for which the start of its hosts waits."""
    held: int
    reserved: int
    memory: int | None
    rate: float | None
    running: tuple[tuple[str, str], ...]
    """Client and program of each run in progress."""
    waiting: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ClientFigures:
    """One client. `due` is its share by weight among busy clients, `time` its share of time since the last poll.

    `held` is its bytes on the device that holds most of them.
    """

    name: str
    process: int
    weight: float | None
    due: float | None
    time: float | None
    rate: float | None
    running: int
    waiting: int
    held: int


@dataclass(frozen=True)
class TopFigures:
    """Everything shown in one frame. Rates and times are None if there was no previous poll."""

    policy: str
    rate: float | None
    islands: tuple[IslandFigures, ...]
    clients: tuple[ClientFigures, ...]


def top_figures(now: Status, before: Status | None = None) -> TopFigures:
    """Computes the figures of a status, and the changes since the previous one."""
    passed = 0.0 if before is None else now["clock"] - before["clock"]
    islands = tuple(_island(island, _named(before, island["name"]), passed) for island in now["islands"])
    clients = _clients(now, _had(before), passed)
    rates = [client.rate for client in clients if client.rate is not None]
    return TopFigures(str(now["policy"]), sum(rates) if passed > 0 else None, islands, clients)


def _named(status: Status | None, island: str) -> Status | None:
    return None if status is None else next((i for i in status["islands"] if i["name"] == island), None)


def _rate(now: float, before: float | None, passed: float) -> float | None:
    """Returns runs per second. A lower count than before means that the counter was restarted."""
    if passed <= 0 or before is None:
        return None
    return max(0.0, now - before) / passed


def _island(status: Status, before: Status | None, passed: float) -> IslandFigures:
    return IslandFigures(
        name=status["name"],
        kind=status["kind"],
        devices=status["devices"],
        state=status["state"],
        waits=status["waits"],
        held=sum(status["held"].values()),
        reserved=status["reserved"],
        memory=status["memory"],
        rate=_rate(status["ended"], None if before is None else before["ended"], passed),
        running=_pairs(status["running"]),
        waiting=_pairs(status["waiting"]),
    )


def _pairs(runs: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(client), str(program)) for client, program in runs)


def _had(status: Status | None) -> dict[str, Status]:
    """Returns the time and runs that each client has had, by name."""
    sessions: Sequence[Status] = [] if status is None else status["clients"]
    return {name: had for session in sessions for name, had in session["had"].items()}


def _clients(now: Status, before: Mapping[str, Status], passed: float) -> tuple[ClientFigures, ...]:
    """Computes the figures of clients with arrays or runs, and of connected processes without any."""
    had, islands = _had(now), now["islands"]
    held: dict[str, int] = {}
    for island in islands:
        for name, size in island["held"].items():
            held[name] = max(held.get(name, 0), size)
    busy = dict.fromkeys(c for island in islands for c, _ in (*island["running"], *island["waiting"]))
    weights = sum(had[name]["weight"] for name in busy if name in had)
    spent = {name: mine["seconds"] - before.get(name, _NOTHING)["seconds"] for name, mine in had.items()}
    all_time = sum(spent.values()) if passed > 0 else 0.0

    def client(name: str, process: int) -> ClientFigures:
        mine = had.get(name)
        return ClientFigures(
            name=name,
            process=process,
            weight=None if mine is None else mine["weight"],
            due=mine["weight"] / weights if mine is not None and name in busy and weights > 0 else None,
            time=spent[name] / all_time if name in spent and all_time > 0 else None,
            rate=None if mine is None else _rate(mine["runs"], before.get(name, _NOTHING)["runs"], passed),
            running=_max_on_one_island(islands, "running", name),
            waiting=_max_on_one_island(islands, "waiting", name),
            held=held.get(name, 0),
        )

    found: list[ClientFigures] = []
    for session in now["clients"]:
        process = f"{session['name']} {session['number']}"
        inside = [name for name in dict.fromkeys((*had, *held, *busy)) if name.endswith(f" of {process}")]
        found += [client(name, session["pid"]) for name in inside or [process]]
    return tuple(found)


_NOTHING: Status = {"runs": 0, "seconds": 0.0}


def _max_on_one_island(islands: Sequence[Status], which: str, client: str) -> int:
    """Returns the largest number of runs of a client on one island: a run may be on several islands."""
    return max((sum(c == client for c, _ in island[which]) for island in islands), default=0)
