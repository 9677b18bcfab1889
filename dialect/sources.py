"""Chooses the names that the user's source files have in IR and plans. The names are relative, so that equal programs
give equal bytes on all machines. The front ends call it.

A file's name is relative to the folder above its package, or to the folder of the program's own file. A file elsewhere
gets the name of its folder, or of its package, as prefix. Files of installed packages have no name, and their lines are
not stored. During a compilation, the MLIR context also maps each name to the path on this machine, for messages.
"""

import os
import sysconfig
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = tuple(f"{os.path.realpath(sysconfig.get_path(p))}{os.sep}" for p in ("stdlib", "platstdlib"))


class Sources:
    """The names of the source files of one program, whose own file is `program`; empty if that file is unknown."""

    def __init__(self, program: str = "") -> None:
        own = _real(program) if _is_file(program) else ""
        self._home = _top(os.path.dirname(own)) if own else ""
        """The program's package, or else its folder. Files in it are the user's, even inside site-packages."""
        self._folder = os.path.dirname(self._home) if _is_package(self._home) else self._home
        self._names: dict[str, str | None] = {}
        self._files: dict[str, str] = {}

    def stored(self, file: str) -> str | None:
        """Returns the name of a file in IR and plans; None for a file of an installed package."""
        if file not in self._names:
            self._names[file] = self._named(file)
        return self._names[file]

    def here(self, stored: str) -> str:
        """Returns the path of a file on this machine; empty if it is unknown."""
        return self._files.get(stored, "")

    def files(self) -> dict[str, str]:
        """Returns the path on this machine of each file that was named."""
        return dict(self._files)

    def _named(self, file: str) -> str | None:
        if not _is_file(file):  # <stdin>, <string>
            return file
        path = _real(file)
        inside = self._home and path.startswith(f"{self._home}{os.sep}")
        below = path[len(self._home) :] if inside else path
        if any(f"{os.sep}{folder}{os.sep}" in below for folder in _INSTALLED):
            return None
        if path.startswith(_STANDARD) and not inside:
            return None
        root = self._folder
        if not (root and path.startswith(f"{root}{os.sep}")):
            folder = os.path.dirname(path)
            root = os.path.dirname(_top(folder)) if _is_package(folder) else os.path.dirname(folder)
        return self._unique(path, root, file)

    def _unique(self, path: str, root: str, file: str) -> str:
        """Returns the name relative to `root`, or to an outer folder if another file already has that name."""
        while True:
            name = os.path.relpath(path, root).replace(os.sep, "/")
            if self._files.setdefault(name, file) == file or root == os.path.dirname(root):
                return name
            root = os.path.dirname(root)


def _is_file(file: str) -> bool:
    return bool(file) and not file.startswith("<")


def _real(file: str) -> str:
    """Resolves the links of a file's folder, but not of the file itself, which may link into a content store."""
    folder, name = os.path.split(os.path.abspath(file))
    return os.path.join(_real_folder(folder), name)


@lru_cache(1024)
def _real_folder(folder: str) -> str:
    """Resolves the links of a folder. Every program names the same few folders, and each link is a system call."""
    return os.path.realpath(folder)


def _is_package(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def _top(folder: str) -> str:
    """Returns the outermost package that contains a folder; the folder itself if it is in no package."""
    while _is_package(folder) and _is_package(os.path.dirname(folder)):
        folder = os.path.dirname(folder)
    return folder


_known: "WeakKeyDictionary[Any, Sources]" = WeakKeyDictionary()


def remember_sources(context: Any, sources: Sources) -> None:
    """Attaches sources to an MLIR context, so that messages about its IR show paths on this machine."""
    _known[context] = sources


def file_here(context: Any, stored: str) -> str:
    """Returns the path on this machine of a file that IR of this context names; empty if it is unknown."""
    sources = _known.get(context)
    return "" if sources is None else sources.here(stored)
