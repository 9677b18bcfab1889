"""Loads a plugin of the user: an object in a Python file (`my.py:NAME`), or an entry point in the group
`pathways.passes`. The compiler loads passes and placement policies with it, and controllers load scheduling policies.
"""

import functools
import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostics import Where
from pathways.dialect.user_line import where_of_exception

GROUP = "pathways.passes"


class PluginError(Exception):
    """A plugin cannot be loaded: `have` is the reason, `where` the user's line. Callers raise an error with a code."""

    def __init__(self, have: str, where: Where | None = None) -> None:
        super().__init__(have)
        self.have = have
        self.where = where


def find_plugin(name: str) -> Any:
    """Returns the object that a name refers to. Raises PluginError."""
    path, colon, attribute = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), attribute)
    for entry in metadata.entry_points(group=GROUP):
        if entry.name == name:
            return _loaded(f"the entry point {name}", entry.load)
    raise PluginError(f"no built-in and no installed entry point {name}")


def make_plugin(name: str) -> Any:
    """Calls the class that a name refers to, without arguments. Raises PluginError, also if the call raises."""
    return _loaded(f"{name}()", find_plugin(name))


def entry_point_names() -> list[str]:
    return [e.name for e in metadata.entry_points(group=GROUP)]


def _loaded(what: str, load: Callable[[], Any]) -> Any:
    """Calls `load`, which runs the user's code. Turns an exception into a PluginError at the line that raised it."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise PluginError(f"{what} raised {type(error).__name__}: {error}", where_of_exception(error)) from error


def _from_file(path: Path, attribute: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"__plugin__{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise PluginError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    _loaded(str(path), functools.partial(spec.loader.exec_module, module))
    if not hasattr(module, attribute):
        raise PluginError(f"{path} has no {attribute}")
    return getattr(module, attribute)
