"""Decides which custom calls (native code by name) the modules of a plan may contain: those that JAX emits, and those
that the user allows. `operations.py` and `check_modules.py` call it.
"""

import os
import re

from pathways.dialect.platforms import platform_named

SETTING = "PATHWAYS_CUSTOM_CALLS"
"""Environment variable with further targets, separated by commas; `*` matches any characters."""


def allowed_by_user() -> str:
    """Returns the custom calls that the environment variable allows."""
    return os.environ.get(SETTING, "")


def is_known(target: str, platform: str, allowed: str) -> bool:
    """Returns whether a plan for `platform` may call `target`; `allowed` is written as in the environment variable."""
    if target in platform_named(platform).custom_calls:
        return True
    patterns = [re.escape(a.strip()).replace(r"\*", ".*") for a in allowed.split(",") if a.strip()]
    return any(re.fullmatch(p, target) for p in patterns)
