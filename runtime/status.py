"""Builds the table that `pw.status()` returns: the islands of this process or cluster, the programs that run and wait
there, and the bytes that each client holds.

`pw.status()` and `pwc status` show it, for devices of this process or as received from a cluster's controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from pathways.dialect.topology import readable
from pathways.runtime.client.controller import Controller


@dataclass(frozen=True)
class IslandStatus:
    """One island. `held`: bytes on its fullest device, by client. `waiting` and `running` list (client, program)."""

    name: str
    kind: str
    devices: int
    lost: tuple[int, ...]
    memory: int | None
    reserved: int
    held: Mapping[str, int]
    waiting: tuple[tuple[str, str], ...]
    running: tuple[tuple[str, str], ...]
    waits: str = ""
    """The resource that the start of the island's hosts waits for."""
    open_ports: int = 0
    """Number of open ports of JAX's transfer server on the hosts. Invalid data sent to such a port ends its host."""
    hung: tuple[int, ...] = ()
    """Positions of the devices that hang in this process."""


@dataclass(frozen=True)
class Status:
    """The status of a process at one moment. `str(status)` is a readable table."""

    policy: str
    islands: tuple[IslandStatus, ...]

    def __str__(self) -> str:
        lines = [f"policy   {self.policy}"]
        for island in self.islands:
            memory = "" if island.memory is None else f", {readable(island.memory)} a device"
            lost = f", lost {', '.join(map(str, island.lost))}" if island.lost else ""
            lines.append(f"{island.name:8} {island.devices} x {island.kind}{memory}{lost}")
            if island.waits:
                lines.append(f"  starting  waits for {island.waits}")
            if island.hung:
                devices = ", ".join(map(str, island.hung))
                lines.append(f"  hung      device {devices}: its threads inside XLA stay until this process ends")
            if island.open_ports:
                warning = "a process that reaches one can end its host (docs/clusters-of-machines.md)"
                lines.append(f"  ports     {island.open_ports} of JAX's transfer server: {warning}")
            if island.reserved:
                lines.append(f"  reserved by runs  {readable(island.reserved)}")
            lines += [f"  held by {client}  {readable(size)}" for client, size in sorted(island.held.items())]
            lines += [f"  running  {program} of {client}" for client, program in island.running]
            lines += [f"  waiting  {program} of {client}" for client, program in island.waiting]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (i.name, f"{i.devices} x {i.kind}", _sizes(i.held), _pairs(i.running), _pairs(i.waiting))
            for i in self.islands
        ]
        head = "".join(f"<th>{h}</th>" for h in ("island", "devices", "held by", "running", "waiting"))
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
        caption = f"<caption>policy {escape(self.policy)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _sizes(held: Mapping[str, int]) -> str:
    return ", ".join(f"{client} {readable(size)}" for client, size in sorted(held.items()))


def _pairs(runs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{program} of {client}" for client, program in runs)


def status_of(controller: Controller) -> Status:
    """Returns the status of all islands, in the order in which they were bound."""
    controller.flights.drain(0.05)  # notices completed runs
    waiting, running = controller.run_queue.ask(lambda s: (list(s.waiting.values()), list(s.running.values())))
    islands: list[IslandStatus] = []
    for island in controller.machine.islands:
        owners = [controller.store.owners_on(d) for d in island.devices]
        labels = sorted({label for o in owners for label in o})
        ledger = controller.ledger
        limit = ledger.limits.get(island.devices[0])
        islands.append(
            IslandStatus(
                name=island.key,
                kind=str(island.devices[0].device_kind),
                devices=len(island.devices),
                lost=controller.machine.lost_on(island),
                hung=tuple(sorted(island.causes)),
                memory=limit,
                reserved=max((ledger.reserved.get(d, 0) for d in island.devices), default=0),
                held={label: max(o.get(label, 0) for o in owners) for label in labels},
                waiting=tuple((r.client, r.program) for r in waiting if island.key in r.islands),
                running=tuple((r.client, r.program) for r in running if island.key in r.islands),
            )
        )
    return Status(controller.policy.name, tuple(islands))


def read_status(fields: Mapping[str, Any]) -> Status:
    """Converts the status message of a cluster's controller."""
    islands = [
        IslandStatus(
            name=str(island["name"]),
            kind=str(island["kind"]),
            devices=int(island["devices"]),
            lost=tuple(int(position) for position in island["lost"]),
            memory=island["memory"],
            reserved=int(island["reserved"]),
            held={str(label): int(size) for label, size in island["held"].items()},
            waiting=tuple((str(client), str(program)) for client, program in island["waiting"]),
            running=tuple((str(client), str(program)) for client, program in island["running"]),
            waits=str(island["waits"]),
            open_ports=int(island["open_ports"]),
        )
        for island in fields["islands"]
    ]
    return Status(str(fields["policy"]), tuple(islands))
