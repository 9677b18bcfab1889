"""Finds the user's source line for an error: the innermost stack frame outside of this package, JAX and Python's
standard library. Code in all layers calls it.

A thread that works for a call that has already returned has another stack. It passes the line of that call to
`on_behalf_of`.
"""

import contextlib
import functools
import importlib.util
import inspect
import sysconfig
from collections.abc import Generator, Iterable
from contextvars import ContextVar
from pathlib import Path

from pathways.dialect.diagnostics import Where

_FOLDERS = ("compiler", "runtime", "dialect", "cli")
PACKAGE_ROOTS = tuple(
    f"{path}/"
    for path in (
        Path(__file__).parents[1],
        *(Path(__file__).resolve().parents[1] / folder for folder in _FOLDERS),
    )
)
"""Folders of this package's code, both as symbolic links and resolved."""
_JAX = importlib.util.find_spec("jax")  # not imported: a controller has no JAX
_FOREIGN = (*PACKAGE_ROOTS, f"{Path((_JAX and _JAX.origin) or 'jax').parent}/", "<frozen ")
_LIBRARIES = "/site-packages/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_given: ContextVar[Where | None] = ContextVar("pathways_line", default=None)


def is_users(file: str) -> bool:
    standard = file.startswith(_STANDARD) and _LIBRARIES not in file  # site-packages is a subfolder of the stdlib
    return not standard and not file.startswith(_FOREIGN) and not file.endswith("/pwc")


def innermost_users(places: Iterable[Where]) -> Where | None:
    """Finds the user's line among frames, innermost first. A line of a library counts only if there is no other."""
    library: Where | None = None
    for place in places:
        if not is_users(place.file):
            continue
        if _LIBRARIES not in place.file:
            return place
        library = library or place
    return library


def caller() -> Where | None:
    """Returns the user's line that this thread works for; None if there is none, as in a console entry point."""
    given = _given.get()
    if given is not None:
        return given
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if _is_own(code.co_filename):
            return Where(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@functools.lru_cache(4096)
def _is_own(file: str) -> bool:
    """Whether a file is the user's own and not of a library. Cached, since each donating call checks its stack."""
    return is_users(file) and _LIBRARIES not in file


@contextlib.contextmanager
def on_behalf_of(line: Where | None) -> Generator[None]:
    """Makes `caller` return `line` inside a `with` block, on a thread that works for an earlier call of the user."""
    token = _given.set(line)
    try:
        yield
    finally:
        _given.reset(token)


def where_of_exception(error: BaseException) -> Where | None:
    """Finds the user's innermost line in an exception's traceback."""
    places: list[Where] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(Where(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return innermost_users(reversed(places))
