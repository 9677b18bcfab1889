"""What must be the same in all processes of a cluster."""

import platform

from pathways.dialect.versions import WRITER

VERSIONS = WRITER | {"python": ".".join(platform.python_version_tuple()[:2])}


def difference(theirs: dict[str, str]) -> str:
    """What another process has otherwise; empty where all is the same."""
    names = sorted(n for n in {*VERSIONS, *theirs} if VERSIONS.get(n) != theirs.get(n))
    return ", ".join(f"{n} {theirs.get(n, 'none')} there, {VERSIONS.get(n, 'none')} here" for n in names)
