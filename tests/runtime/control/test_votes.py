"""Hosts of one island vote on received values, and learn of the end of a run loop by loop, in one order."""

from collections.abc import Mapping

from pathways.runtime.control.relay import Relay
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import CANCELLED, DOOMED, ENDED, Outcome
from pathways.runtime.wire.errors import HostLost

HOST_LOST = HostLost(island="island1", reason="killed")
VOTE, OWN, SHARED = -1, 1, 2
RANKS = frozenset(("a/0", "a/1"))
BRANCHES = {VOTE: ("vote", RANKS), OWN: ("while", RANKS), SHARED: ("while", RANKS | {"b"})}


class Host:
    def __init__(self) -> None:
        self.received: list[Outcome] = []

    def send(self, message: Outcome) -> None:
        self.received.append(message)


def begun() -> tuple[Relay, Mapping[str, Host]]:
    hosts = {name: Host() for name in ("a/0", "a/1", "b")}
    relay = Relay(7, hosts, BRANCHES, {"a/0": "a", "a/1": "a"})
    relay.begin()
    return relay, hosts


def good(name: int) -> m.Decided:
    return m.Decided(7, VOTE, name, name, 1)


def bad(name: int) -> m.Undecided:
    return m.Undecided(7, VOTE, name, name, "why")


def ended(outcome: Outcome, loop: int) -> bool:
    return outcome.name == ENDED and outcome.loop == loop


def test_a_vote_is_good_if_all_hosts_have_the_value() -> None:
    relay, hosts = begun()
    relay.deliver("a/1", good(5))
    assert not hosts["a/0"].received
    relay.deliver("a/0", good(5))
    assert hosts["a/0"].received == hosts["a/1"].received == [good(5)] and not hosts["b"].received and not relay.loops


def test_a_vote_is_bad_for_all_hosts_if_one_lacks_the_value() -> None:
    for first, second in ((good(5), bad(5)), (bad(5), good(5)), (bad(5), bad(5))):
        relay, hosts = begun()
        relay.deliver("a/0", first)
        relay.deliver("a/1", second)
        assert hosts["a/0"].received == hosts["a/1"].received == [bad(5)]


def test_votes_continue_when_a_run_is_doomed_or_cancelled() -> None:
    for end in (Relay.doom, Relay.cancel):
        relay, hosts = begun()
        relay.deliver("a/0", good(5))
        end(relay, HOST_LOST)
        relay.deliver("a/1", good(5))
        for name in RANKS:
            assert hosts[name].received[-1] == good(5)


def test_the_loss_of_another_island_ends_only_loops_shared_with_it() -> None:
    relay, hosts = begun()
    relay.deliver("a/0", m.Decided(7, OWN, 10, 11, 1))
    relay.deliver("a/0", m.Decided(7, SHARED, 20, 21, 1))
    before = len(hosts["a/0"].received)
    relay.doom(HOST_LOST)
    relay.deliver("a/1", m.Reached(7, OWN, 10))
    relay.deliver("a/1", m.Reached(7, SHARED, 20))
    relay.deliver("a/0", m.Reached(7, SHARED, 30))  # another loop, reached only after the loss
    relay.deliver("a/1", m.Reached(7, SHARED, 30))
    relay.deliver("a/0", m.Decided(7, OWN, 10, 12, 1))
    found = hosts["a/0"].received[before:]
    assert found == hosts["a/1"].received[before:] and len(found) == 4
    assert ended(found[0], 20) and found[1].name == DOOMED and ended(found[2], 30) and found[3].name == 12
    assert [outcome.name for outcome in hosts["b"].received[-1:]] == [DOOMED]


def test_a_cancelled_run_ends_all_loops() -> None:
    relay, hosts = begun()
    relay.deliver("a/0", m.Decided(7, OWN, 10, 11, 1))
    relay.doom(HOST_LOST)
    relay.cancel(HOST_LOST)
    relay.deliver("a/1", m.Reached(7, OWN, 10))
    names = [(outcome.name, outcome.loop) for outcome in hosts["a/1"].received]
    assert names == [(11, 10), (DOOMED, 0), (ENDED, 10), (CANCELLED, 0)]


def test_the_loss_of_an_island_ends_loops_that_two_islands_of_several_hosts_share() -> None:
    islands = {host: host[0] for host in ("a/0", "a/1", "c/0", "c/1")}
    hosts = {name: Host() for name in islands}
    relay = Relay(7, hosts, {SHARED: ("while", frozenset(islands))}, islands)
    relay.begin()
    relay.deliver("a/0", m.Decided(7, SHARED, 20, 21, 1))
    relay.doom(HOST_LOST)
    for host in hosts.values():
        assert [(outcome.name, outcome.loop) for outcome in host.received] == [(21, 20), (ENDED, 20), (DOOMED, 0)]
    assert relay.loops == 0
