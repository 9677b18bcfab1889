"""All hosts of a run hear the same decisions in the same order, whatever thread says them, and none behind a loss."""

import random
import threading
from collections.abc import Callable
from functools import partial

from pathways.runtime.client.relay import Relay
from pathways.runtime.host.run.decisions import Decisions, Said, name_of_turn
from pathways.runtime.host.run.store import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost

GONE = HostLost(island="island0", reason="killed")


class Host:
    def __init__(self) -> None:
        self.heard: list[Said] = []

    def tell(self, message: Said) -> None:
        self.heard.append(message)


def test_nothing_is_told_before_all_have_heard_of_the_run() -> None:
    hosts = [Host(), Host()]
    relay = Relay(7, hosts)
    relay.hear(m.Decided(7, 1, 0))
    assert [h.heard for h in hosts] == [[], []]
    relay.begin()
    relay.hear(m.Decided(7, 2, 1))
    assert [h.heard for h in hosts] == [[m.Decided(7, 1, 0), m.Decided(7, 2, 1)]] * 2


def test_nothing_is_told_behind_a_loss() -> None:
    host = Host()
    relay = Relay(7, [host])
    relay.doom(GONE)
    relay.hear(m.Decided(7, 1, 0))
    relay.doom(GONE)
    assert not host.heard
    relay.begin()
    relay.hear(m.Decided(7, 2, 0))
    assert [type(said) for said in host.heard] == [m.Undecided] and host.heard[0].name == -1


def test_any_order_of_threads_is_one_order_of_hosts() -> None:
    for seed in range(50):
        hosts = [Host() for _ in range(3)]
        relay = Relay(seed, hosts)
        work = [partial(relay.hear, m.Decided(seed, n, n % 2)) for n in range(20)]
        work += [relay.begin, partial(relay.doom, GONE)]
        random.Random(seed).shuffle(work)
        threads = [threading.Thread(target=_do, args=(work[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hosts[0].heard == hosts[1].heard == hosts[2].heard
        assert isinstance(hosts[0].heard[-1], m.Undecided)


def _do(work: list[Callable[[], None]]) -> None:
    for each in work:
        each()


def test_a_host_takes_what_it_hears_of_its_runs() -> None:
    said: list[Said] = []
    decisions = Decisions(said.append)
    decisions.hear(m.Decided(3, 1, 1))  # of a run that it does not know
    decisions.begin(3)
    run = decisions.of(3)
    run.say(1, 0)
    run.say(2, Poison(GONE))
    assert [(s.name, type(s)) for s in said] == [(1, m.Decided), (2, m.Undecided)] and not run.is_known(1)
    for one in said:
        decisions.hear(one)
    assert run.take(1) == 0
    bad = run.take(2)
    assert isinstance(bad, Poison) and bad.cause == GONE
    decisions.hear(m.Decided(3, 4, 1))
    decisions.hear(m.Undecided(3, -1, said[1].cause if isinstance(said[1], m.Undecided) else ""))
    assert run.take(4) == 1 and isinstance(run.take(5), Poison)  # what was decided before stays
    decisions.end(3)
    decisions.hear(m.Decided(3, 6, 1))


def test_names_differ_and_are_numbers_of_the_wire() -> None:
    names = {name_of_turn(outer, step, turn) for outer in (0, 5, 1 << 61) for step in range(20) for turn in range(50)}
    assert len(names) == 3000 and all(0 <= n < 1 << 62 for n in names)
    assert name_of_turn(5, 1, 2) == name_of_turn(5, 1, 2)
