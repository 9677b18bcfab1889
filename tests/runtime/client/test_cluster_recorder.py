"""A recording of a cluster has what the hosts that answer have recorded; a note names the others."""

from collections.abc import Callable, Mapping
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
    """A host that tells a time, or something else."""

    def __init__(self, time: str) -> None:
        self.time = time

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        assert isinstance(make(1), m.TellTime)
        return m.Answer(1, value=self.time)


class Islands:
    """A cluster of hosts that answer as a test says: an island that is not named by `hosts` has none."""

    def __init__(self, **answers: m.Answer | PathwaysError) -> None:
        self.answers = answers
        self.hosts = {"gone": None, "odd": Far("noon")} | {name: Far("17") for name in answers}
        self.asked: list[m.Message] = []

    def host(self, island: str) -> Any:
        if (host := self.hosts[island]) is None:
            raise lost(island)
        return host

    def ask_each(
        self, hosts: Mapping[str, Any], make: Callable[[str, int], m.Message]
    ) -> dict[str, m.Answer | PathwaysError]:
        self.asked += [make(name, 1) for name in hosts]
        return {name: self.answers[name] for name in hosts}


def test_hosts_that_do_not_record_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    islands = Islands(good=m.Answer(1, blob=EMPTY), ended=lost("ended"), wrong=m.Answer(1, blob=b"{}"))
    recorder = ClusterRecorder(cast(Cluster, islands))
    recorder.start()
    assert islands.asked == [m.Record(1, MOST_LAUNCHES // 3)] * 3
    begun = capsys.readouterr().err
    assert [line.split(": ")[1] for line in begun.splitlines()] == [
        f"the trace lacks what {name} did" for name in ("gone", "odd", "ended")
    ]
    assert "the host of gone is gone: a test says so" in begun
    assert recorder.stop() == Recording([], [], [], [])
    assert islands.asked[3:] == [m.Record(1, 0)] * 2  # those that have begun
    assert capsys.readouterr().err == "note: the trace lacks what wrong did: other kinds of rows\n"
