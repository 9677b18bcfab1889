"""A recording of a cluster has what the hosts that answer have recorded; a note names the others."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, cast

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.cluster import Cluster
from pathways.runtime.client.cluster_recorder import ClusterRecorder
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.observe.recorder import MOST_LAUNCHES
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost

EMPTY = write_events(Recording(), {})


def lost(island: str) -> PathwaysError:
    return PathwaysError(HostLost(island=island, reason="a test says so"))


class Far:
    """A host that tells a time, or something else, and answers whether it records as a test says."""

    def __init__(self, name: str, time: str, answer: m.Answer | PathwaysError | None = None) -> None:
        self.time, self.answer = time, answer
        self.members, self.island = (self,), name
        self.asked: list[m.Message] = []

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        message = make(1)
        if isinstance(message, m.TellTime):
            return m.Answer(1, value=self.time)
        self.asked.append(message)
        if isinstance(self.answer, PathwaysError):
            raise self.answer
        assert self.answer is not None
        return self.answer


class Islands:
    """A cluster of hosts that answer as a test says: an island that is not named by `hosts` has none."""

    def __init__(self, **answers: m.Answer | PathwaysError) -> None:
        self.far = {name: Far(name, "17", answer) for name, answer in answers.items()}
        self.hosts = {"gone": None, "odd": Far("odd", "noon")} | self.far
        self.client = 3

    def known(self) -> list[str]:
        return list(self.hosts)

    @property
    def asked(self) -> list[m.Message]:
        """What all were asked, what was asked first in front."""
        turns = zip_longest(*(far.asked for far in self.far.values()))
        return [message for turn in turns for message in turn if message is not None]

    def host(self, island: str) -> Any:
        if (host := self.hosts[island]) is None:
            raise lost(island)
        return host


def test_hosts_that_do_not_record_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    islands = Islands(good=m.Answer(1, blob=EMPTY), ended=lost("ended"), wrong=m.Answer(1, blob=b"{}"))
    recorder = ClusterRecorder(cast(Cluster, islands))
    recorder.start()
    assert islands.asked == [m.Record(1, 3, MOST_LAUNCHES // 3)] * 3
    begun = capsys.readouterr().err
    assert [line.split(": ")[1] for line in begun.splitlines()] == [
        f"the trace lacks what {name} did" for name in ("gone", "odd", "ended")
    ]
    assert "the host of gone is gone: a test says so" in begun
    assert recorder.stop() == Recording([], [], [], [])
    assert islands.asked[3:] == [m.Record(1, 3, 0)] * 2  # those that have begun
    assert capsys.readouterr().err == "note: the trace lacks what wrong did: other kinds of rows\n"
