"""Says for people what a run waits for: others before it, or memory that others hold. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pathways.dialect.topology import readable
from pathways.runtime.control.scheduling import Request

_MOST = 3
"""Clients that are named."""


def before_it(runs: Sequence[Request]) -> str:
    """Names the clients whose runs go first: `behind 2 runs of trainer, 1 of main`."""
    counts = Counter(run.client for run in runs).most_common()
    parts = [f"{count} of {client}" for client, count in counts[:_MOST]]
    if parts:
        count, _, rest = parts[0].partition(" ")
        parts[0] = f"{count} {'run' if count == '1' else 'runs'} {rest}"
    more = f" and {len(counts) - _MOST} more clients" if len(counts) > _MOST else ""
    return f"behind {', '.join(parts)}{more}" if parts else ""


def lacking(island: str, size: int, held: Mapping[str, int]) -> str:
    """Names who holds memory: `lacks 2.0 GiB on island0; main holds 5.0 GiB`."""
    owners = sorted(((size, client) for client, size in held.items() if size), reverse=True)[:_MOST]
    said = ", ".join(f"{client} holds {readable(size)}" for size, client in owners)
    return f"lacks {readable(size)} on {island}" + (f"; {said}" if said else "")
