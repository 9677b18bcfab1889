"""Formats why a run waits, as text: other clients' runs are first, or memory is missing. Status reports of a process
and of a cluster use it. Pure functions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from pathways.dialect.topology import readable
from pathways.runtime.control.scheduling import Request

_MAX_NAMED_CLIENTS = 3
"""Maximum number of clients named in a text."""


def before_it(runs: Sequence[Request]) -> str:
    """Returns the clients whose runs go first: `after 2 runs of trainer, 1 of main`."""
    counts = Counter(run.client for run in runs).most_common()
    parts = [f"{count} of {client}" for client, count in counts[:_MAX_NAMED_CLIENTS]]
    if parts:
        count, _, rest = parts[0].partition(" ")
        parts[0] = f"{count} {'run' if count == '1' else 'runs'} {rest}"
    more = f" and {len(counts) - _MAX_NAMED_CLIENTS} more clients" if len(counts) > _MAX_NAMED_CLIENTS else ""
    return f"after {', '.join(parts)}{more}" if parts else ""


def lacking(island: str, size: int, held: Mapping[str, int]) -> str:
    """Returns the missing memory and the clients that hold it: `lacks 2.0 GiB on island0; main holds 5.0 GiB`."""
    owners = sorted(((size, client) for client, size in held.items() if size), reverse=True)[:_MAX_NAMED_CLIENTS]
    holders = ", ".join(f"{client} holds {readable(size)}" for size, client in owners)
    return f"lacks {readable(size)} on {island}" + (f"; {holders}" if holders else "")
