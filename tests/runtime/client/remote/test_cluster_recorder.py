"""A recording of a cluster contains the events of the hosts that answer; a note names the other islands."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, cast

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.client.remote.cluster_recorder import ClusterRecorder
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.observe.recorder import MAX_LAUNCHES
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost

EMPTY = write_events(Recording(), {})


def lost(island: str) -> PathwaysError:
    return PathwaysError(HostLost(island=island, reason="a test says so"))


class FakeHost:
    """A host that answers with a fixed time, and answers a request to record as a test says."""

    def __init__(self, name: str, time: str, answer: m.Answer | PathwaysError | None = None) -> None:
        self.time, self.answer = time, answer
        self.members, self.name = (self,), name
        self.asked: list[m.Message] = []

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        return lambda: self.ask(make)

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        message = make(1)
        if isinstance(message, m.ReportTime):
            return m.Answer(1, value=self.time)
        self.asked.append(message)
        if isinstance(self.answer, PathwaysError):
            raise self.answer
        assert self.answer is not None
        return self.answer


class FakeCluster:
    """A cluster of hosts that answer as a test says. Island `gone` has no host; `odd` answers with a malformed time."""

    def __init__(self, **answers: m.Answer | PathwaysError) -> None:
        self.fakes = {name: FakeHost(name, "17", answer) for name, answer in answers.items()}
        self.hosts = {"gone": None, "odd": FakeHost("odd", "noon")} | self.fakes
        self.client = 3

    def known(self) -> list[str]:
        return list(self.hosts)

    @property
    def asked(self) -> list[m.Message]:
        """Returns the requests to all hosts, the first request of each host first."""
        turns = zip_longest(*(fakes.asked for fakes in self.fakes.values()))
        return [message for turn in turns for message in turn if message is not None]

    def host(self, island: str) -> Any:
        if (host := self.hosts[island]) is None:
            raise lost(island)
        return host


def test_hosts_that_do_not_record_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    islands = FakeCluster(good=m.Answer(1, blob=EMPTY), ended=lost("ended"), wrong=m.Answer(1, blob=b"{}"))
    recorder = ClusterRecorder(cast(Cluster, islands))
    recorder.start()
    assert islands.asked == [m.Record(1, 3, MAX_LAUNCHES // 3)] * 3
    begun = capsys.readouterr().err
    assert [line.split(": ")[1] for line in begun.splitlines()] == [
        f"the trace has no events of {name}" for name in ("gone", "odd", "ended")
    ]
    assert "the host of gone is lost: a test says so" in begun
    assert recorder.stop() == Recording([], [], [], [])
    assert islands.asked[3:] == [m.Record(1, 3, 0)] * 2  # the hosts that have begun to record
    assert capsys.readouterr().err == "note: the trace has no events of wrong: its kinds of rows are unknown\n"


@pytest.mark.parametrize("names", [(), ("one",), ("one", "two")])
def test_the_hosts_of_a_recording_share_the_limit_of_launches(names: tuple[str, ...]) -> None:
    islands = FakeCluster(**{name: m.Answer(1, blob=EMPTY) for name in names})
    ClusterRecorder(cast(Cluster, islands)).start()
    assert islands.asked == [m.Record(1, 3, MAX_LAUNCHES // len(names)) for _ in names]
