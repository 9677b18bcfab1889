"""Records the tests that `make test` has passed, so that `make test-all` of the same files need not repeat them.

    python tests/support/passed.py      # exits with 0 if there is a record for these files

The record names the tests, and has a digest of all files that they can read, of the interpreter, of its packages and
of JAX's settings.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = ROOT / ".venv" / "passed.json"
FILES = (
    *("bench", "cli", "compiler", "dialect", "docs", "pathways", "runtime", "samples", "tests", "viz"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "mkdocs.yml", "pyproject.toml"),
)


def digest() -> str:
    found = hashlib.sha256(sys.version.encode())
    settings = {
        f"{name}={value}" for name, value in os.environ.items() if name.startswith(("JAX_", "PATHWAYS_TESTS_OPT"))
    }
    found.update("\n".join(sorted(settings - {"JAX_PLATFORMS=cpu"})).encode())  # tests set it themselves
    packages = {f"{d.metadata['Name']} {d.version}" for d in importlib.metadata.distributions()}
    found.update("\n".join(sorted(packages)).encode())
    for path in _files():
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def _files() -> Iterator[Path]:
    for name in FILES:
        at = ROOT / name
        inside = sorted(at.rglob("*")) if at.is_dir() else [at]
        yield from (path for path in inside if path.is_file() and "__pycache__" not in path.parts)


def record(tests: Collection[str], files: str) -> None:
    """Records tests that have passed with the files of this digest."""
    RECORD.write_text(json.dumps({"digest": files, "tests": sorted(tests)}))


def recorded() -> frozenset[str]:
    """Returns the tests that have passed with these files; none if there is no record for them."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return frozenset(found["tests"] if found.get("digest") == digest() else ())


if __name__ == "__main__":
    sys.exit(not recorded())
