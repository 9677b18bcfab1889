"""Ends the loops, inboxes and ways that a test opens in this process.

In a real host, the end of the process closes them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from support import left_behind
from support.streams import end_loop

from pathways.runtime.host.between.eager_server import Outbox
from pathways.runtime.host.between.inbox import Inbox
from pathways.runtime.wire.loop import Loop


@pytest.fixture(scope="module")
def transfer_servers_stay() -> Iterator[None]:
    """Lets a module start JAX transfer servers in this process, although JAX cannot close them."""
    with left_behind.kept_by_a_library():
        yield


@pytest.fixture(autouse=True)
def _what_a_test_opens_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes all objects that the test opened, the newest first."""
    opened: list[Any] = []

    def noting(make: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            opened.append(self)

        return init

    monkeypatch.setattr(Loop, "start", noting(Loop.start))
    for kind in (Outbox, Inbox):
        monkeypatch.setattr(kind, "__init__", noting(kind.__init__))
    yield
    for one in reversed(opened):
        if isinstance(one, Loop):
            end_loop(one)
        else:
            one.close()
