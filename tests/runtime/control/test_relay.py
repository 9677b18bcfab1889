"""All hosts of a run receive the same decisions in the same order, from any thread, and none after a loss."""

import random
import threading
from collections.abc import Callable
from functools import partial

from pathways.runtime.client.remote_array import Parts
from pathways.runtime.control.relay import Relay
from pathways.runtime.host.run.decisions import Decisions, iteration_name
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import CANCELLED, DOOMED, Outcome, doom
from pathways.runtime.wire.errors import HostLost

HOST_LOST = HostLost(island="island0", reason="killed")


class Host:
    def __init__(self) -> None:
        self.received: list[Outcome] = []

    def send(self, message: Outcome) -> None:
        self.received.append(message)


LOOP, CHOICE = 1, 2
BRANCHES = {LOOP: ("while", frozenset(("a", "b"))), CHOICE: ("cond", frozenset(("a", "b", "c")))}


def relay_of(run: int = 7) -> tuple[Relay, dict[str, Host]]:
    hosts = {name: Host() for name in ("a", "b", "c")}
    return Relay(run, hosts, BRANCHES), hosts


def turn(name: int, value: int = 1, loop: int = 100) -> m.Decided:
    return m.Decided(7, LOOP, loop, name, value)


def choice(name: int) -> m.Decided:
    return m.Decided(7, CHOICE, 1000 + name, name, 0)


def test_decisions_are_sent_only_after_the_run_has_begun() -> None:
    relay, hosts = relay_of()
    relay.deliver("a", choice(1))
    assert not any(h.received for h in hosts.values())
    relay.begin()
    relay.deliver("a", choice(2))
    assert [h.received for h in hosts.values()] == [[choice(1), choice(2)]] * 3


def test_decisions_are_not_sent_after_a_loss() -> None:
    relay, hosts = relay_of()
    relay.doom(HOST_LOST)
    relay.deliver("a", choice(1))
    relay.doom(HOST_LOST)
    relay.begin()
    relay.deliver("a", choice(2))
    for host in hosts.values():
        assert [(type(outcome), outcome.name) for outcome in host.received] == [(m.Undecided, DOOMED)]


def test_decisions_reach_only_hosts_of_the_loop_and_wait_for_the_slowest() -> None:
    relay, hosts = relay_of()
    relay.begin()
    a, b, c = hosts.values()
    relay.deliver("a", turn(1))
    relay.deliver("a", turn(2))  # delayed: host b has not reached the first decision yet
    relay.deliver("a", turn(1, loop=200))  # another execution of the same loop is independent
    assert a.received == b.received == [turn(1), turn(1, loop=200)] and not c.received
    relay.deliver("b", m.Reached(7, LOOP, 100))
    assert a.received[2:] == b.received[2:] == [turn(2)]
    relay.deliver("a", turn(3, value=0))
    assert len(a.received) == 3
    relay.deliver("b", m.Reached(7, LOOP, 100))
    assert a.received[3:] == b.received[3:] == [turn(3, value=0)] and not c.received


def test_the_relay_drops_the_state_of_completed_loops() -> None:
    relay, _ = relay_of()
    relay.begin()
    for loop, last in ((100, turn(2, value=0)), (200, m.Undecided(7, LOOP, 200, 2, ""))):
        relay.deliver("a", turn(1, loop=loop))
        relay.deliver("b", m.Reached(7, LOOP, loop))
        relay.deliver("a", last)
        assert relay.loops == 1
        relay.deliver("b", m.Reached(7, LOOP, loop))
        assert relay.loops == 0
    relay.deliver("b", choice(5))
    for host in ("a", "c"):
        assert relay.loops == 1
        relay.deliver(host, m.Reached(7, CHOICE, 1005))
    assert relay.loops == 0


def test_cancelling_a_run_fails_only_its_unfinished_partitions() -> None:
    relay, hosts = relay_of()
    relay.begin()
    parts = Parts(relay.cancel)
    ended, running = parts.add(), parts.add()
    ended.end({})
    assert ended.cancel(HOST_LOST)
    assert ended.cause(0) is None and running.cause(0) == HOST_LOST and running.is_ready()
    assert [[outcome.name for outcome in host.received] for host in hosts.values()] == [[CANCELLED]] * 3
    running.end({})
    assert not running.cancel(HOST_LOST)


def test_concurrent_decisions_reach_all_hosts_in_one_order() -> None:
    for seed in range(50):
        relay, hosts = relay_of(seed)
        work = [partial(relay.deliver, "a", choice(n)) for n in range(20)]
        work += [relay.begin, partial(relay.doom, HOST_LOST)]
        random.Random(seed).shuffle(work)
        threads = [threading.Thread(target=_call_all, args=(work[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        a, b, c = hosts.values()
        assert a.received == b.received == c.received
        assert isinstance(a.received[-1], m.Undecided)


def _call_all(work: list[Callable[[], None]]) -> None:
    for each in work:
        each()


def test_a_host_takes_the_decisions_of_its_runs() -> None:
    outcome: list[Outcome | m.Reached] = []
    decisions = Decisions(outcome.append)
    decisions.deliver(turn(1))  # of an unknown run: ignored
    decisions.begin(7)
    run = decisions.of(7)
    run.report(LOOP, 100, 1, 0)
    run.report(LOOP, 100, 2, Poison(HOST_LOST))
    run.reach(LOOP, 100)
    assert not run.is_known(1) and outcome[2] == m.Reached(7, LOOP, 100)
    for one in outcome[:2]:
        assert not isinstance(one, m.Reached)
        decisions.deliver(one)
    assert run.take(1) == 0
    bad = run.take(2)
    assert isinstance(bad, Poison) and bad.cause == HOST_LOST
    decisions.deliver(turn(4))
    decisions.deliver(doom(7, HOST_LOST, cancelled=False))
    assert run.take(4) == 1 and isinstance(run.take(5), Poison)  # earlier decisions stay valid
    assert run.cancelled is None  # loops that run only on this host continue
    decisions.deliver(doom(7, HOST_LOST, cancelled=True))
    assert run.cancelled is not None
    decisions.end(7)
    decisions.deliver(turn(6))


def test_names_of_turns_are_unique_62_bit_numbers() -> None:
    names = {iteration_name(outer, step, turn) for outer in (0, 5, 1 << 61) for step in range(20) for turn in range(50)}
    assert len(names) == 3000 and all(0 <= n < 1 << 62 for n in names)
    assert iteration_name(5, 1, 2) == iteration_name(5, 1, 2)


def test_decisions_of_a_host_outside_the_loop_are_ignored() -> None:
    """A client may describe its plan wrongly."""
    relay, hosts = relay_of()
    relay.begin()
    relay.deliver("c", turn(1))
    assert not any(host.received for host in hosts.values()) and not relay.loops
