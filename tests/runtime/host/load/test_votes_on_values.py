"""Tests how the hosts of one island agree whether a value of another island has arrived, on one of these hosts."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.inbound_values import UNORDERED
from pathways.dialect.plan.nouns import Layout
from pathways.dialect.plan.part import Edge
from pathways.dialect.ranks import ONE_EACH
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.load.edges import Arrival
from pathways.runtime.host.run.awaited_values import AwaitedValues
from pathways.runtime.host.run.decisions import Deciding, InStep
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import Pulled
from pathways.runtime.states import RECEIVED
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost

LAYOUT = Layout(0, ())
EDGE = Edge(3, 4, "island0", "island1", ArrayType((2,), "float32"), LAYOUT, LAYOUT, False)
VOTES = -2
FAILED = Poison(ComputationFailed(computation="f", island="island0", cause="before"))
LOST = HostLost(island="island0", reason="killed")


class Piece:
    """A piece of a value, which has arrived when it is waited for, or has failed."""

    def __init__(self, failure: str = "") -> None:
        self.failure, self.is_awaited = failure, False

    def is_ready(self) -> bool:
        return self.is_awaited

    def block_until_ready(self) -> None:
        self.is_awaited = True
        if self.failure:
            raise RuntimeError(self.failure)


class Received:
    """A value of another island as it arrives on a host: the slot of a run, and the votes of the host."""

    def __init__(self, pulled: Shards | Poison) -> None:
        self.votes: list[Any] = []
        self.frame = Frame(1, [(0, pulled)], transfers=50, decisions=InStep(7, self.votes.append))
        self.frame.transition_edge(RECEIVED, EDGE.number, "be pulled")
        hosts: Any = SimpleNamespace(awaited=AwaitedValues(limit=0.0), ranks=ONE_EACH)
        enqueuer: Any = None
        self.work = Arrival(EDGE, 0, tuple, None, hosts, UNORDERED, VOTES).start(self.frame, enqueuer)

    def awaits(self) -> type[Any]:
        """Waits for all pieces that the work waits for; returns what it then waits for."""
        (pending,) = next(self.work)
        while isinstance(pending, Pulled):
            pending.wait()
            (pending,) = next(self.work)
        return type(pending)

    def end(self, outcome: m.Decided | m.Undecided) -> Any:
        """Delivers the common decision; returns the value that the run continues with."""
        decisions = self.frame.decisions
        assert decisions is not None
        decisions.deliver(outcome)
        assert next(self.work, None) is None
        return self.frame.values[0]


def undecided(vote: m.Decided | m.Undecided, cause: Any) -> m.Undecided:
    return m.Undecided(vote.run, vote.branch, vote.loop, vote.name, write_diagnostic(cause))


@pytest.mark.parametrize("all_agree", [True, False])
def test_a_value_is_used_if_its_pieces_arrive_on_all_hosts(all_agree: bool) -> None:
    pieces = [Piece(), Piece()]
    received = Received(Shards(pieces))
    assert received.awaits() is Deciding and all(piece.is_awaited for piece in pieces)
    (vote,) = received.votes
    assert isinstance(vote, m.Decided) and (vote.run, vote.branch, vote.value) == (7, VOTES, 1)
    found = received.end(vote if all_agree else undecided(vote, LOST))
    assert found == (tuple(pieces) if all_agree else Poison(LOST))


@pytest.mark.parametrize(
    ("pulled", "said"),
    [
        (Shards([Piece(), Piece("the network is down")]), "the network is down"),
        (FAILED, "before"),  # it could not be requested
    ],
)
def test_a_host_on_which_a_value_does_not_arrive_reports_why(pulled: Shards | Poison, said: str) -> None:
    received = Received(pulled)
    assert received.awaits() is Deciding
    (vote,) = received.votes
    assert isinstance(vote, m.Undecided) and vote.branch == VOTES
    cause = read_diagnostic(vote.cause)
    assert said in str(Poison(cause).error())
    assert received.end(undecided(vote, LOST)) == Poison(LOST), "the common decision may have another cause"
