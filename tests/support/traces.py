"""Reads the events in a file that `pw.trace` has written."""

import json
from pathlib import Path
from typing import Any


def events_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


def names_of(events: list[dict[str, Any]]) -> dict[int, str]:
    return {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}


def launched(events: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Lists the computations that ran on devices, as (island, computation, run)."""
    names = names_of(events)
    spans = (e for e in events if e["ph"] == "X" and "line" in e["args"])
    return sorted((names[e["pid"]], e["name"], e["args"]["run"]) for e in spans)
