"""Draws the screen of `pwc top` with the library rich: tables of islands, of clients, and of running and waiting runs.
`top.py` calls it for each refresh.
"""

from collections import Counter

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pathways.cli.top_figures import ClientFigures, IslandFigures, TopFigures
from pathways.dialect.topology import readable

_BAR_COLUMNS = 12
"""Width of a memory bar in columns."""
_MAX_NAMED = 3
"""Number of programs named in an island's queue."""
UNKNOWN = "-"


def screen_of(figures: TopFigures, address: str, *, keys: bool) -> RenderableType:
    """Draws one frame. If `keys`, the frame says how to quit."""
    devices = sum(island.devices for island in figures.islands)
    counts = f"{_some(len(figures.islands), 'island')}, {_some(devices, 'device')}"
    head = f"{address}   {counts}   policy {figures.policy}   {_rate(figures.rate)} runs/s"
    parts: list[RenderableType] = [Text(head, style="bold"), Text(), _islands(figures.islands), Text()]
    parts.append(_clients(figures.clients) if figures.clients else Text("no clients"))
    if any(island.running or island.waiting for island in figures.islands):
        parts += [Text(), _queues(figures.islands)]
    if keys:
        parts += [Text(), Text("q quits", style="dim")]
    return Group(*parts)


def _table(*names: str, right: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _islands(islands: tuple[IslandFigures, ...]) -> Table:
    right = ("runs/s", "running", "waiting")
    table = _table("island", "devices", "state", "", "held + reserved", *right, right=right)
    for island in islands:
        state = f"{island.state}, waits for {island.waits}" if island.waits else island.state
        table.add_row(
            island.name, f"{island.devices} x {island.kind}", Text(state, style="" if island.state == "up" else "red"),
            _bar(island), _memory(island), _rate(island.rate), str(len(island.running)), str(len(island.waiting)),
        )  # fmt: skip
    return table


def _queues(islands: tuple[IslandFigures, ...]) -> Table:
    table = _table("queue", "", "", right=())
    for island in islands:
        for what, runs in (("running", island.running), ("waiting", island.waiting)):
            if runs:
                table.add_row(island.name, what, _queue(runs))
    return table


def _bar(island: IslandFigures) -> RenderableType:
    if not island.memory:
        return ""
    taken = min(island.held + island.reserved, island.memory)
    return ProgressBar(total=island.memory, completed=taken, width=_BAR_COLUMNS)


def _memory(island: IslandFigures) -> str:
    taken = f"{readable(island.held)} + {readable(island.reserved)}"
    return taken if island.memory is None else f"{taken} of {readable(island.memory)}"


def _queue(runs: tuple[tuple[str, str], ...]) -> str:
    """Formats the runs in a queue: `step of main of train 1 x 10, eval of main of test 2`."""
    counts = Counter(runs).most_common()
    named = [f"{program} of {client}" + (f" x {n}" if n > 1 else "") for (client, program), n in counts[:_MAX_NAMED]]
    return ", ".join(named) + (", ..." if len(counts) > _MAX_NAMED else "")


def _clients(clients: tuple[ClientFigures, ...]) -> Table:
    names = ("client", "process", "weight", "share", "time", "runs/s", "running", "waiting", "held")
    table = _table(*names, right=names[1:])
    for client in clients:
        weight = UNKNOWN if client.weight is None else f"{client.weight:g}"
        table.add_row(
            client.name, str(client.process), weight, _part(client.due), _part(client.time), _rate(client.rate),
            str(client.running), str(client.waiting), readable(client.held),
        )  # fmt: skip
    return table


def _some(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _rate(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate:.1f}"


def _part(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.0%}"
