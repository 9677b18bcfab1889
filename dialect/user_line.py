"""The user's line: the innermost frame outside of this package, of JAX and of Python's own.

Code that raises an error asks for it here, at any depth: `caller` reads it off the stack. A thread that works for a
call that has returned has another stack; it says `on_behalf_of` the line of that call.
"""

import contextlib
import importlib.util
import inspect
import sysconfig
from collections.abc import Generator, Iterable, Iterator
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
"""Folders of this package's code, as links and resolved."""
_JAX = importlib.util.find_spec("jax")  # not imported: a controller has no JAX
_FOREIGN = (*PACKAGE_ROOTS, f"{Path((_JAX and _JAX.origin) or 'jax').parent}/", "<frozen ")
_LIBRARIES = "/site-packages/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_given: ContextVar[Where | None] = ContextVar("pathways_line", default=None)


def is_users(file: str) -> bool:
    standard = file.startswith(_STANDARD) and _LIBRARIES not in file  # libraries lie in a folder of it
    return not standard and not file.startswith(_FOREIGN) and not file.endswith("/pwc")


def innermost_users(places: Iterable[Where]) -> Where | None:
    """Finds the user's own line among frames, innermost first: a line of a library only where there is no other."""
    library: Where | None = None
    for place in places:
        if not is_users(place.file):
            continue
        if _LIBRARIES not in place.file:
            return place
        library = library or place
    return library


def caller() -> Where | None:
    """Returns the user's line that this thread works for; None where there is none (a console entry point)."""
    given = _given.get()
    if given is not None:
        return given
    found = innermost_users(_stack())
    return None if found is None or _LIBRARIES in found.file else found


def _stack() -> Iterator[Where]:
    frame = inspect.currentframe()
    while frame is not None:
        yield Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back


@contextlib.contextmanager
def on_behalf_of(line: Where | None) -> Generator[None]:
    """Makes `caller` return this line, if it is one, in a block: that of the call that this thread works for."""
    token = _given.set(line)
    try:
        yield
    finally:
        _given.reset(token)


def where_of_exception(error: BaseException) -> Where | None:
    """Returns the user's innermost line in an exception's traceback."""
    places: list[Where] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(Where(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return innermost_users(reversed(places))
