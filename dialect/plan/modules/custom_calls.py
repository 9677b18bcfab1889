"""Which custom calls a plan may name: those that JAX makes on its platform, and what the user allows beside them."""

import os
import re

from pathways.dialect.platforms import platform_named

SETTING = "PATHWAYS_CUSTOM_CALLS"
"""Names of further targets, with commas between them; a star at the end stands for any rest."""


def allowed_by_user() -> str:
    """Reads the custom calls that the environment allows."""
    return os.environ.get(SETTING, "")


def is_known(target: str, platform: str, allowed: str) -> bool:
    """Returns whether a plan for `platform` may call `target`; `allowed` as in the environment."""
    if target in platform_named(platform).custom_calls:
        return True
    patterns = [re.escape(a.strip()).replace(r"\*", ".*") for a in allowed.split(",") if a.strip()]
    return any(re.fullmatch(p, target) for p in patterns)
