"""Reads time limits in seconds from environment variables, such as PATHWAYS_HOST_TIMEOUT. Heartbeats, watchdogs and
host callbacks use them.
"""

import contextlib
import os

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadSetting

MAX_POLL_GAP_S = 2.0
"""A longer gap between two polls means that this process was stopped, so missed heartbeats before the gap do not
count."""


def time_limit(name: str, default: str, *, may_be_zero: bool = False) -> float:
    """Reads a setting. Raises PWC0707 if it is not a positive number; 0 is valid if `may_be_zero`."""
    value = os.environ.get(name, default)
    with contextlib.suppress(ValueError):
        if (seconds := float(value)) > 0 or (may_be_zero and seconds == 0):
            return seconds
    rule = "seconds, 0 for no limit" if may_be_zero else "seconds, above 0"
    raise PathwaysError(BadSetting(source=name, value=value, rule=rule, example=f"{name}={default}"))
